#!/usr/bin/env bash
# Remove from a virtual environment what no training needs, so that the image stays below 700 MB:
# headers, tests and sources of C, the installer, parts of packages for other ends, symbols for
# debuggers, and LAPACK, which Paddle loads for paddle.linalg only. Python compiles its modules again
# where they run (PYTHONPYCACHEPREFIX).
set -euo pipefail

cd "$1"/lib/python3.*/site-packages

rm -rf pip pip-*.dist-info
rm -rf paddle/include paddle/libs/lib{lapack,blas,gfortran,quadmath}.so.*
rm -rf pyarrow/{include,includes,src,tests} pyarrow/{libarrow_flight,_flight,libarrow_python_flight}*
rm -rf pyarrow/{_pyarrow_cpp_tests,_orc,_dataset_orc,_s3fs,_gcsfs,_azurefs,_hdfs}.*
rm -rf pyarrow/{_json,_feather,_substrait}.* pyarrow/{_,_dataset_,libarrow_python_}parquet_encryption.*
rm -rf numpy/core/_simd.* numpy/{distutils,f2py}
rm -rf paddle/cost_model/*.json setuptools/config/_validate_pyproject setuptools/*.exe
rm -rf pillow.libs/lib{avif,webp,freetype,harfbuzz,lcms2,brotli}* PIL/_{avif,webp,imagingft,imagingcms}.*
find pygments/lexers -name '[a-z]*.py' ! -name python.py ! -name special.py ! -name text.py -delete
# The second one of two implementations, for interpreters other than CPython.
rm -f zstandard/_cffi*
find . -depth -type d \( -name __pycache__ -o -name tests \) -exec rm -rf {} +
find . -type f -name '*.pyi' -delete
find pyarrow numpy -type f \( -name '*.px[di]' -o -name '*.pyx' -o -name '*.h' -o -name '*.a' \) -delete

# A wheel has no links, so it has each of pyarrow's libraries under two or three names.
for library in pyarrow/lib*.so; do
    for other in "$library".*; do
        [ -f "$other" ] || continue
        if [ ! -L "$library" ] && cmp --silent "$library" "$other"; then
            ln -sf "$(basename "$library")" "$other"
        fi
    done
done
find PIL numpy numpy.libs psutil pyarrow pydantic_core xxhash yaml zstandard paddle/libs/libdnnl.so.3 \
    -type f -name '*.so*' -exec strip --strip-unneeded {} +
