"""What people who know Paddle or other systems write, and what it is here, or why it isn't."""

from fleet_config.source import KeyPath

# In tables.<name> and in its rule: what this engine ignores or can't do, measured with 2.6.2.
_ENTRY = (
    "the engine ignores CountFilterEntry and ProbabilityEntry; use admission.threshold, which works"
)
_SHOW_CLICK = "shows and clicks are always counted, from the label; remove it"
_TABLE_CLASS = (
    "tables are kept in memory, as the engine's SSDSparseTable spills nothing and hangs when it "
    "is saved; remove it and use more servers where memory is short"
)
_ACCESSOR = (
    "all tables have the SparseAccessor, as with the others gradients reach the wrong values or "
    "none; remove it"
)
_CLIP = (
    "servers don't clip gradients; remove it, rule.bounds keeps the values within limits "
    "(optimizer.clip_norm is for the dense weights)"
)
_DECAY = (
    "no rule of the servers decays weights; remove it (optimizer.weight_decay is for the dense "
    "weights)"
)
_SCHEDULE = (
    "servers keep one learning rate; remove it (optimizer.schedule is for the dense weights)"
)
_IN_TABLES = {
    "entry": _ENTRY,
    "entry_attr": _ENTRY,
    "countfilterentry": _ENTRY,
    "count_filter_entry": _ENTRY,
    "probabilityentry": _ENTRY,
    "probability_entry": _ENTRY,
    "showclickentry": _SHOW_CLICK,
    "show_click_entry": _SHOW_CLICK,
    "table_class": _TABLE_CLASS,
    "ssdsparsetable": _TABLE_CLASS,
    "ssd": _TABLE_CLASS,
    "accessor": _ACCESSOR,
    "accessor_class": _ACCESSOR,
    "clip": _CLIP,
    "clip_norm": _CLIP,
    "grad_clip": _CLIP,
    "weight_decay": _DECAY,
    "regularizer": _DECAY,
    "l2": _DECAY,
    "schedule": _SCHEDULE,
    "lr_decay": _SCHEDULE,
}

# Paddle's names below table_parameters and those of its embedding -> the key below tables.<name>.
_TABLE_KEYS = {
    "embedding_dim": "dim",
    "embedx_dim": "dim",
    "fea_dim": "dim",
    "shard_num": "shards",
    "initializer": "rule.initial_range",
    "weight_bounds": "rule.bounds",
    "embedx_threshold": "admission.threshold",
    "nonclk_coeff": "admission.show_weight",
    "click_coeff": "admission.click_weight",
    "delete_threshold": "eviction.below",
    "show_click_decay_rate": "eviction.decay",
    "delete_after_unseen_days": "eviction.unseen_epochs",
}
_KEYS = {
    ("a_sync",): "mode",
    ("k_steps",): "mode.steps",
    ("checkpoint", "every_epochs"): "checkpoint.every.epochs",
    ("checkpoint", "every_minutes"): "checkpoint.every.minutes",
    ("checkpoint", "every_tasks"): "checkpoint.every.tasks",
    ("checkpoint", "dir"): "checkpoint.path",
    ("checkpoint", "every", "full"): "checkpoint.full_every",
    ("checkpoint", "every", "delta"): "checkpoint.full_every",
    ("optimizer", "grad_clip"): "optimizer.clip_norm",
    ("optimizer", "gradient_accumulation"): "optimizer.accumulate",
}
_KINDS = {
    "sgd": "naive",
    "sparsenaivesgdrule": "naive",
    "sparseadagradsgdrule": "adagrad",
    "stdadagradsgdrule": "std_adagrad",
    "sparseadamsgdrule": "adam",
    "sparsesharedadamsgdrule": "shared_adam",
    "geo_async": "geo",
    "ssp": "bounded",
}


def why_not(path: KeyPath) -> str | None:
    """Why there is no such key, where it is one that people expect."""
    return _IN_TABLES.get(path[-1].lower()) if path[0] == "tables" and len(path) > 2 else None


def our_key(path: KeyPath) -> str | None:
    """The full key for one that is called otherwise elsewhere."""
    if path[0] == "tables" and len(path) > 2 and path[-1] in _TABLE_KEYS:
        return f"tables.{path[1]}.{_TABLE_KEYS[path[-1]]}"
    return _KEYS.get(path)


def our_kind(name: str) -> str | None:
    """The mode or rule that is called `name` elsewhere."""
    return _KINDS.get(name.lower())
