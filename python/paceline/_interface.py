"""The functions, structs and constants of include/paceline; scripts/headers.py writes this."""
from ctypes import (CFUNCTYPE, Structure, c_bool, c_char, c_char_p, c_double, c_float,
                    c_int, c_size_t, c_uint, c_uint16, c_uint32, c_uint64, c_ulonglong,
                    c_ushort, c_void_p)

PL_BENCH_THREADS_MAX = 64
PL_U8 = 0
PL_F32 = 1
PL_I32 = 2
PL_I64 = 3
PL_BF16 = 4
PL_OK = 0
PL_ERR_TIMEOUT = -1
PL_ERR_FULL = -2
PL_ERR_STOP = -3
PL_ERR_PEER = -30
PL_ERR_REPLICAS = -42
PL_ERR_INPUT = -60
PL_ERR_USAGE = -61
PL_ERR_NOT_FOUND = -62
PL_ERR_UNSUPPORTED = -63
PL_ERR_NOMEM = -80
PL_ERR_IO = -81
PL_ERR_DIVERGED = -82
PL_ERR_BUG = -99
PL_LOG_DEBUG = 0
PL_LOG_INFO = 1
PL_LOG_WARN = 2
PL_LOG_ERROR = 3
PL_KEY_TEXT_SIZE = 65
PL_KEY_ID_SIZE = 17
PL_KV_KEY_MAX = 63
PL_KV_MAX = 1024
PL_LR_COMPLETE = 0
PL_LR_DIVERGED = 1
PL_LR_NOT_FINITE = 2
PL_LR_STOPPED = 3
PL_POOL_MAX = 0
PL_POOL_AVERAGE = 1
PL_ELTWISE_SUM = 0
PL_ELTWISE_PRODUCT = 1
PL_ELTWISE_MAX = 2
PL_PLAN_STATED = 0
PL_PLAN_MEASURED = 1
PL_PLAN_SCALED = 2
PL_STOPPING_SOON = 0
PL_STOPPING_NOW = 1
PL_STOPPING_DONE = 2
PL_WORK_JOINED = 0
PL_WORK_TRAINING = 1
PL_WORK_LEFT = 2
PL_WORK_OVER = 3
PL_SHARED_TASKS_MAX = 16384
PL_SHARED_KEY_MAX = 63
PL_SHARED_VARS_MAX = 256
PL_SHARED_AHEAD = 8
PL_SHARED_KEPT = 2
PL_TEAM_CHANNELS = 8
PL_SUM = 0
PL_MEAN = 1
PL_MAX = 2
PL_MIN = 3
PL_USER_OP = 4


class pl_bench_memory(Structure):
    _fields_ = [
        ("parameters", c_uint64),
        ("state", c_uint64),
        ("gradients", c_uint64),
        ("optimizer", c_uint64),
        ("activations", c_uint64),
        ("activation_gradients", c_uint64),
        ("scratch", c_uint64),
        ("testing", c_uint64),
        ("records", c_uint64),
    ]


class pl_bench_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("steps", c_uint32),
        ("by_layer", c_bool),
        ("precision", c_char_p),
    ]


class pl_bench_layer(Structure):
    _fields_ = [
        ("name", (c_char * 64)),
        ("type", (c_char * 24)),
        ("dims", c_size_t),
        ("shape", (c_size_t * 8)),
        ("forward_ms", c_double),
        ("backward_ms", c_double),
        ("gflops", c_double),
        ("share", c_double),
        ("chosen", (c_char * 160)),
    ]


class pl_bench_step_report(Structure):
    _fields_ = [
        ("median_ms", c_double),
        ("p10_ms", c_double),
        ("p90_ms", c_double),
        ("gflops", c_double),
        ("peak_percent", c_double),
        ("samples_per_s", c_double),
        ("first_step_s", c_double),
        ("tuning_s", c_double),
        ("parameters", c_uint64),
        ("state", c_uint64),
        ("memory", pl_bench_memory),
        ("peak_mb", c_double),
        ("begin_mb", c_double),
        ("faults", c_uint64),
        ("batch", c_uint32),
        ("threads", c_int),
        ("process_threads", c_int),
        ("busy_threads", c_int),
        ("busy", (c_double * PL_BENCH_THREADS_MAX)),
        ("reorders", c_int),
        ("casts", c_int),
        ("weight_reorders", c_int),
        ("kernels", c_char_p),
        ("isa", c_char_p),
        ("layout", c_char_p),
        ("precision", c_char_p),
        ("ms", c_void_p),
        ("steps", c_uint32),
        ("layer", c_void_p),
        ("layers", c_size_t),
        ("probed_ms", c_double),
        ("loading_ms", c_double),
        ("clearing_ms", c_double),
        ("update_ms", c_double),
        ("rest_ms", c_double),
        ("reserved", (c_uint64 * 8)),
    ]


class pl_bench_data_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("batch", c_uint32),
        ("threads", c_uint),
        ("seconds", c_double),
        ("share", c_double),
        ("cache_bytes", c_uint64),
    ]


class pl_bench_data_report(Structure):
    _fields_ = [
        ("records", c_size_t),
        ("open_s", c_double),
        ("first_batch_s", c_double),
        ("taken", c_uint64),
        ("records_per_s", c_double),
        ("median_ms", c_double),
        ("p99_ms", c_double),
        ("waited_share", c_double),
        ("kept_records", c_uint64),
        ("kept_bytes", c_uint64),
        ("batch", c_uint32),
        ("tasks", c_uint32),
        ("reserved", (c_uint64 * 8)),
    ]


class pl_bench_bytes_report(Structure):
    _fields_ = [
        ("copy", c_double),
        ("sum", c_double),
        ("bf16_encode", c_double),
        ("bf16_decode", c_double),
        ("int8_encode", c_double),
        ("int8_decode", c_double),
    ]


class pl_convert_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("net", c_void_p),
        ("replace", c_bool),
        ("torchvision", c_bool),
        ("channels", c_uint32),
        ("height", c_uint32),
        ("width", c_uint32),
    ]


class pl_records(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("count", c_size_t),
        ("channels", c_uint32),
        ("height", c_uint32),
        ("width", c_uint32),
        ("classes", c_uint32),
        ("type", c_int),
        ("values", c_void_p),
        ("begin", c_void_p),
        ("fill", c_float),
        ("labels", c_void_p),
        ("read", CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p)),
        ("release", CFUNCTYPE(None, c_void_p)),
        ("user", c_void_p),
        ("hash", c_uint64),
    ]


class pl_stream_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("channels", c_uint32),
        ("height", c_uint32),
        ("width", c_uint32),
        ("classes", c_uint32),
        ("type", c_int),
        ("memory", c_size_t),
        ("folder", c_char_p),
        ("grows", c_bool),
        ("hash", c_uint64),
        ("parts", c_bool),
        ("keep", c_char_p),
        ("set", c_uint64),
    ]


class pl_stream_part(Structure):
    _fields_ = [
        ("hash", c_uint64),
        ("records", c_uint64),
    ]


class pl_field(Structure):
    _fields_ = [
        ("spec", c_char_p),
        ("name", c_char_p),
        ("rank", c_uint32),
        ("dims", (c_uint32 * 7)),
    ]


class pl_draw(Structure):
    _fields_ = [
        ("training", c_bool),
        ("seed", c_uint64),
        ("epoch", c_uint64),
    ]


class pl_map(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("channels", c_uint32),
        ("height", c_uint32),
        ("width", c_uint32),
        ("apply", CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p)),
        ("release", CFUNCTYPE(None, c_void_p)),
        ("user", c_void_p),
        ("hash", c_uint64),
        ("constant", c_bool),
    ]


class pl_sample_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("count", c_size_t),
        ("seed", c_uint64),
        ("replacement", c_bool),
        ("stratified", c_bool),
        ("weights", c_void_p),
    ]


class pl_data_info(Structure):
    _fields_ = [
        ("kind", c_char_p),
        ("records", c_size_t),
        ("channels", c_uint32),
        ("height_min", c_uint32),
        ("height_max", c_uint32),
        ("width_min", c_uint32),
        ("width_max", c_uint32),
        ("mapped", c_bool),
        ("shape", (c_uint32 * 3)),
        ("classes", c_uint32),
        ("of_class", c_void_p),
        ("bytes", c_uint64),
        ("hash", c_uint64),
        ("values", c_uint32),
        ("reserved", (c_uint64 * 8)),
    ]


class pl_data_record(Structure):
    _fields_ = [
        ("height", c_uint32),
        ("width", c_uint32),
        ("has_label", c_bool),
        ("label", c_uint32),
        ("class_name", c_char_p),
        ("name", (c_char * 256)),
    ]


class pl_data_channel(Structure):
    _fields_ = [
        ("mean", c_double),
        ("deviation", c_double),
        ("least", c_double),
        ("most", c_double),
    ]


class pl_data_stats(Structure):
    _fields_ = [
        ("records", c_size_t),
        ("channels", c_uint32),
        ("classes", c_uint32),
        ("scaled", c_bool),
        ("channel", c_void_p),
        ("of_class", c_void_p),
    ]


class pl_data_check(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("user", c_void_p),
        ("problem", CFUNCTYPE(None, c_void_p, c_char_p)),
        ("progress", CFUNCTYPE(c_bool, c_void_p, c_size_t, c_size_t)),
    ]


class pl_data_verified(Structure):
    _fields_ = [
        ("done", c_size_t),
        ("broken", c_size_t),
        ("set", c_char_p),
    ]


class pl_data_packing(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("prefix", c_char_p),
        ("shard_bytes", c_uint64),
        ("replace", c_bool),
        ("user", c_void_p),
        ("progress", CFUNCTYPE(c_bool, c_void_p, c_size_t, c_size_t)),
    ]


class pl_data_packed(Structure):
    _fields_ = [
        ("records", c_size_t),
        ("shards", c_uint32),
        ("bytes", c_uint64),
        ("spec", (c_char * 4608)),
    ]


class pl_engine_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("log", CFUNCTYPE(None, c_void_p, c_int, c_char_p)),
        ("user", c_void_p),
        ("log_level", c_int),
    ]


class pl_flag(Structure):
    _fields_ = [
        ("value", c_int),
    ]


class pl_job_change(Structure):
    _fields_ = [
        ("field", c_char_p),
        ("from", c_char_p),
        ("to", c_char_p),
        ("breaks", c_bool),
    ]


class pl_kv_want(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("key", c_char_p),
        ("version", c_uint64),
        ("wait", c_int),
        ("timeout_s", c_double),
    ]


class pl_lr_step(Structure):
    _fields_ = [
        ("rate", c_double),
        ("loss", c_double),
        ("smoothed", c_double),
        ("accuracy", c_double),
    ]


class pl_lr_range_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("from", c_double),
        ("to", c_double),
        ("steps", c_uint32),
        ("linear", c_bool),
        ("stop", c_void_p),
        ("step", CFUNCTYPE(None, c_void_p, c_void_p, c_uint32, c_uint32)),
        ("user", c_void_p),
    ]


class pl_lr_range_report(Structure):
    _fields_ = [
        ("step", c_void_p),
        ("steps", c_size_t),
        ("end", c_int),
        ("found", c_bool),
        ("low", c_double),
        ("high", c_double),
        ("least", c_double),
        ("still_falls", c_bool),
        ("batch", c_uint32),
        ("accuracy_set", c_char_p),
        ("accuracy_records", c_size_t),
        ("reserved", (c_uint64 * 8)),
    ]


class pl_layer(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("type", c_char_p),
        ("dims", c_size_t),
        ("shape", (c_size_t * 8)),
        ("parameters", c_size_t),
        ("state", c_size_t),
        ("multiply_adds", c_double),
    ]


class pl_weight_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("filler", c_char_p),
        ("std", c_float),
        ("value", c_float),
        ("bias", c_bool),
        ("bias_value", c_float),
        ("rate", c_float),
        ("decay", c_float),
        ("bias_rate", c_float),
        ("bias_decay", c_float),
    ]


class pl_convolution_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("stride", c_uint32),
        ("pad", c_uint32),
        ("kernel_w", c_uint32),
        ("pad_w", c_uint32),
        ("group", c_uint32),
        ("dilation", c_uint32),
        ("weights", c_void_p),
    ]


class pl_lrn_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("local_size", c_uint32),
        ("alpha", c_float),
        ("beta", c_float),
        ("k", c_float),
        ("within_channel", c_bool),
    ]


class pl_batch_norm_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("eps", c_float),
        ("fraction", c_float),
    ]


class pl_net_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("batch", c_uint32),
        ("solver", c_char_p),
        ("seed", c_uint64),
        ("threads", c_uint32),
        ("kernels", c_char_p),
        ("precision", c_char_p),
        ("inference", c_bool),
        ("team", c_void_p),
    ]


class pl_test_result(Structure):
    _fields_ = [
        ("error", c_double),
        ("loss", c_double),
        ("count", c_uint64),
    ]


class pl_weights(Structure):
    _fields_ = [
        ("layer", c_char_p),
        ("index", c_uint32),
        ("at", c_void_p),
        ("count", c_size_t),
        ("dims", c_size_t),
        ("shape", (c_size_t * 8)),
    ]


class pl_plan_progress(Structure):
    _fields_ = [
        ("strategy", c_char_p),
        ("workers", c_uint32),
        ("row", c_size_t),
        ("rows", c_size_t),
        ("t", c_double),
        ("seconds", c_double),
    ]


class pl_plan_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("workers_min", c_uint32),
        ("workers_max", c_uint32),
        ("price", c_double),
        ("simulate_s", c_double),
        ("simulate_limit_s", c_double),
        ("progress", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("user", c_void_p),
        ("stop", c_void_p),
    ]


class pl_plan_trial(Structure):
    _fields_ = [
        ("done", c_bool),
        ("samples_per_s", c_double),
        ("at_s", c_double),
        ("set", c_char_p),
        ("error", c_double),
        ("loss", c_double),
    ]


class pl_plan_row(Structure):
    _fields_ = [
        ("strategy", c_char_p),
        ("algorithm", c_char_p),
        ("workers", c_uint32),
        ("batch", c_uint32),
        ("step_s", c_double),
        ("step_from", c_int),
        ("round_steps", c_double),
        ("round_s", c_double),
        ("exchange_s", c_double),
        ("samples_per_s", c_double),
        ("carried", c_double),
        ("utilisation", c_double),
        ("worker_bytes", c_uint64),
        ("driver_bytes", c_uint64),
        ("worker_memory", c_uint64),
        ("epoch_s", c_double),
        ("epoch_cost", c_double),
        ("trial", pl_plan_trial),
    ]


class pl_plan_note(Structure):
    _fields_ = [
        ("text", (c_char * 256)),
    ]


class pl_plan_report(Structure):
    _fields_ = [
        ("records", c_size_t),
        ("row", c_void_p),
        ("rows", c_size_t),
        ("best", c_size_t),
        ("single", c_size_t),
        ("several", c_size_t),
        ("simulated_s", c_double),
        ("evaluated", c_uint32),
        ("interrupted", c_bool),
        ("note", c_void_p),
        ("notes", c_size_t),
        ("reserved", (c_uint64 * 8)),
    ]


class pl_net_classes(Structure):
    _fields_ = [
        ("blob", (c_char * 128)),
        ("count", c_size_t),
        ("steps", c_size_t),
        ("probabilities", c_bool),
        ("values", c_bool),
        ("target", (c_char * 64)),
    ]


class pl_progress(Structure):
    _fields_ = [
        ("t", c_double),
        ("commit_t", c_double),
        ("epoch", c_double),
        ("epochs", c_double),
        ("steps", c_uint64),
        ("workers", c_uint32),
        ("loss", c_double),
        ("error", c_double),
        ("samples_per_s", c_double),
        ("exchange_s", c_double),
        ("slowest", c_int),
        ("eta_s", c_double),
        ("local_steps", c_uint64),
        ("first_exchange_s", c_double),
        ("simulated", c_bool),
    ]


class pl_stopping(Structure):
    _fields_ = [
        ("stage", c_int),
        ("commit_s", c_double),
        ("state_age_s", c_double),
        ("asks", c_bool),
        ("initial", c_bool),
        ("exchanges", c_uint64),
        ("path", c_char_p),
    ]


class pl_run_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("out", c_char_p),
        ("resume", c_bool),
        ("force_change", c_bool),
        ("take_over", c_bool),
        ("dry_run", c_bool),
        ("snapshot", c_char_p),
        ("chosen", c_char_p),
        ("begins", CFUNCTYPE(None, c_void_p, c_char_p)),
        ("event", CFUNCTYPE(None, c_void_p, c_char_p)),
        ("progress", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("user", c_void_p),
        ("trace", c_char_p),
        ("stop", c_void_p),
        ("stopping", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("tick", CFUNCTYPE(None, c_void_p)),
        ("workers", c_void_p),
        ("follows_batch", c_bool),
        ("start_workers", CFUNCTYPE(c_int, c_void_p, c_uint32, c_char_p)),
        ("workers_lost", CFUNCTYPE(c_uint32, c_void_p)),
        ("listens", CFUNCTYPE(None, c_void_p, c_char_p)),
        ("patience_s", c_double),
        ("listen", c_char_p),
        ("port", c_ushort),
        ("insecure", c_bool),
        ("key", c_char_p),
        ("max_mbit", c_double),
    ]


class pl_run_report(Structure):
    _fields_ = [
        ("reason", (c_char * 16)),
        ("has_validation", c_bool),
        ("has_test", c_bool),
        ("validation_error", c_double),
        ("test_error", c_double),
        ("validation_loss", c_double),
        ("test_loss", c_double),
        ("epochs", c_double),
        ("samples", c_uint64),
        ("used", c_uint64),
        ("repeated", c_uint64),
        ("missed", c_uint64),
        ("has_train", c_bool),
        ("train_loss", c_double),
        ("wall_s", c_double),
        ("session_s", c_double),
        ("seed", c_uint64),
        ("strategy", (c_char * 32)),
        ("workers", c_uint32),
        ("parameters", c_uint64),
        ("simulated", c_bool),
        ("net", (c_char * 64)),
        ("directory", (c_char * 2048)),
        ("model", (c_char * 2112)),
        ("model_elsewhere", c_bool),
        ("has_cache", c_bool),
        ("cached", c_uint64),
        ("cached_bytes", c_uint64),
        ("cached_disk", c_uint64),
        ("cached_disk_bytes", c_uint64),
        ("bad_records", c_uint64),
        ("bad_record", ((c_char * 240) * 3)),
        ("batch", c_uint64),
        ("reserved", (c_uint64 * 8)),
    ]


class pl_work_progress(Structure):
    _fields_ = [
        ("stage", c_int),
        ("run", c_char_p),
        ("driver", c_char_p),
        ("worker", c_uint32),
        ("workers", c_uint32),
        ("steps", c_ulonglong),
        ("loss", c_double),
        ("samples_per_s", c_double),
        ("reason", c_char_p),
    ]


class pl_work_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("progress", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("user", c_void_p),
        ("driver", c_char_p),
        ("listen", c_char_p),
        ("insecure", c_bool),
        ("key", c_char_p),
        ("advertise", c_char_p),
        ("data_root", c_char_p),
        ("data_urls", c_char_p),
        ("max_mbit", c_double),
        ("threads", c_uint),
        ("retry_s", c_double),
        ("leave", c_void_p),
        ("pause", c_void_p),
        ("nice", c_int),
        ("tick", CFUNCTYPE(None, c_void_p)),
        ("cache_directory", c_char_p),
        ("one_machine", c_bool),
        ("run_directory", c_char_p),
    ]


class pl_net_sample_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("prime", c_char_p),
        ("length", c_uint64),
        ("temperature", c_double),
        ("seed", c_uint64),
    ]


class pl_shared_reduction(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("op", c_int),
        ("fn", CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_size_t)),
        ("user", c_void_p),
        ("identity", c_float),
    ]


class pl_sim_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("run", c_void_p),
        ("limit_s", c_double),
        ("threads", c_bool),
        ("no_files", c_bool),
        ("evaluate_records", c_uint32),
    ]


class pl_team_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("rendezvous", c_char_p),
        ("members", c_uint32),
        ("members_max", c_uint32),
        ("listen", c_char_p),
        ("insecure", c_int),
        ("key", c_char_p),
        ("timeout_s", c_double),
        ("stripes", c_uint32),
        ("no_shared_memory", c_int),
        ("ucx", c_int),
        ("kv_bytes", c_uint64),
    ]


class pl_reduction(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("op", c_int),
        ("weight", c_double),
        ("fn", CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_size_t)),
        ("user", c_void_p),
    ]


class pl_call_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("channel", c_uint32),
        ("algorithm", c_char_p),
        ("wire", c_char_p),
        ("chunk_kb", c_uint32),
        ("stripes", c_uint32),
        ("spin_us", c_double),
        ("residual", c_void_p),
    ]


# By name: the result, and the arguments.
FUNCTIONS = {
    "pl_averaging_speedup": (c_double, [c_double, c_double, c_double, c_double]),
    "pl_bench_bytes": (c_int, [c_void_p, c_void_p]),
    "pl_bench_data": (c_int, [c_void_p, c_char_p, c_void_p, c_void_p]),
    "pl_bench_net": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "pl_bench_step": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "pl_bench_step_release": (None, [c_void_p]),
    "pl_cluster_free": (None, [c_void_p]),
    "pl_cluster_load": (c_int, [c_void_p, c_char_p, c_void_p]),
    "pl_cluster_text": (c_char_p, [c_void_p]),
    "pl_convert": (c_int, [c_void_p, c_char_p, c_char_p, c_void_p, c_bool]),
    "pl_convert_as": (c_int, [c_void_p, c_char_p, c_char_p, c_void_p]),
    "pl_cores": (c_uint32, []),
    "pl_data_bind": (c_int, [c_void_p, c_char_p, c_void_p]),
    "pl_data_class_name": (c_char_p, [c_void_p, c_uint32]),
    "pl_data_close": (None, [c_void_p]),
    "pl_data_concat": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t]),
    "pl_data_describe": (c_int, [c_void_p, c_void_p]),
    "pl_data_field": (c_int, [c_void_p, c_char_p, c_void_p, c_void_p]),
    "pl_data_fit": (c_int, [c_void_p, c_uint32, c_uint32, c_uint32, c_void_p]),
    "pl_data_index": (c_int, [c_void_p, c_void_p]),
    "pl_data_map": (c_int, [c_void_p, c_char_p, c_char_p, c_void_p]),
    "pl_data_measure": (c_int, [c_void_p, c_size_t, c_void_p]),
    "pl_data_open": (c_int, [c_void_p, c_char_p, c_bool, c_void_p]),
    "pl_data_open_for": (c_int, [c_void_p, c_char_p, c_void_p]),
    "pl_data_open_job": (c_int, [c_void_p, c_bool, c_void_p]),
    "pl_data_open_pictures": (c_int, [c_void_p, c_void_p, c_size_t, c_char_p, c_void_p]),
    "pl_data_pack": (c_int, [c_void_p, c_void_p, c_void_p]),
    "pl_data_read": (c_int, [c_void_p, c_size_t, c_size_t, c_void_p, c_size_t]),
    "pl_data_record_at": (c_int, [c_void_p, c_size_t, c_void_p]),
    "pl_data_repeat": (c_int, [c_void_p, c_char_p, c_char_p, c_uint32]),
    "pl_data_sample": (c_int, [c_void_p, c_char_p, c_char_p, c_void_p]),
    "pl_data_shape": (c_int, [c_void_p, c_void_p]),
    "pl_data_shard": (c_int, [c_void_p, c_char_p, c_char_p, c_uint32, c_uint32]),
    "pl_data_sheet": (c_int, [c_void_p, c_size_t, c_uint32, c_uint32, c_char_p, c_bool]),
    "pl_data_subset": (c_int, [c_void_p, c_char_p, c_char_p, c_void_p, c_size_t]),
    "pl_data_take_maps": (c_int, [c_void_p, c_void_p]),
    "pl_data_target": (c_char_p, [c_void_p, c_void_p, c_size_t]),
    "pl_data_unbind": (c_int, [c_void_p, c_char_p]),
    "pl_data_verify": (c_int, [c_void_p, c_char_p, c_bool, c_void_p, c_void_p]),
    "pl_data_zip": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t]),
    "pl_dividing_speedup": (c_double, [c_double, c_double]),
    "pl_engine_create": (c_int, [c_void_p, c_void_p]),
    "pl_engine_destroy": (None, [c_void_p]),
    "pl_engine_error": (c_char_p, [c_void_p]),
    "pl_flag_get": (c_int, [c_void_p]),
    "pl_flag_set": (None, [c_void_p, c_int]),
    "pl_job_create": (c_int, [c_void_p, c_void_p]),
    "pl_job_diff": (c_int, [c_void_p, c_void_p, CFUNCTYPE(None, c_void_p, c_void_p), c_void_p]),
    "pl_job_free": (None, [c_void_p]),
    "pl_job_load": (c_int, [c_void_p, c_char_p, c_void_p]),
    "pl_job_load_directory": (c_int, [c_void_p, c_char_p, c_void_p]),
    "pl_job_load_run": (c_int, [c_void_p, c_char_p, c_void_p]),
    "pl_job_load_solver": (c_int, [c_void_p, c_char_p, c_void_p]),
    "pl_job_override": (c_int, [c_void_p, c_char_p]),
    "pl_job_set": (c_int, [c_void_p, c_char_p]),
    "pl_job_set_net": (c_int, [c_void_p, c_void_p]),
    "pl_job_set_strategy": (c_int, [c_void_p, c_char_p]),
    "pl_job_set_test_data": (c_int, [c_void_p, c_char_p]),
    "pl_job_set_train_data": (c_int, [c_void_p, c_char_p]),
    "pl_job_slices_for": (c_int, [c_void_p, c_char_p, c_void_p]),
    "pl_job_text": (c_int, [c_void_p, c_void_p]),
    "pl_job_unset": (c_int, [c_void_p, c_char_p]),
    "pl_key_draw": (c_int, [c_void_p, c_char_p]),
    "pl_key_id": (c_int, [c_void_p, c_char_p, c_char_p]),
    "pl_key_make": (c_int, [c_void_p, c_char_p]),
    "pl_key_own": (c_int, [c_void_p, c_char_p]),
    "pl_key_read": (c_int, [c_void_p, c_char_p, c_char_p]),
    "pl_kv_begin": (c_int, [c_void_p, c_void_p, c_void_p]),
    "pl_kv_data": (c_void_p, [c_void_p]),
    "pl_kv_end": (None, [c_void_p]),
    "pl_kv_error": (None, [c_void_p, c_char_p, c_size_t]),
    "pl_kv_finish": (c_int, [c_void_p, c_double, c_void_p]),
    "pl_kv_free": (None, [c_void_p]),
    "pl_kv_get": (c_int, [c_void_p, c_void_p, c_void_p]),
    "pl_kv_open": (c_int, [c_void_p, c_void_p]),
    "pl_kv_progress": (None, [c_void_p, c_void_p, c_void_p]),
    "pl_kv_size": (c_size_t, [c_void_p]),
    "pl_kv_update": (c_int, [c_void_p, c_char_p, c_uint64, c_void_p, c_size_t, c_double]),
    "pl_kv_version": (c_uint64, [c_void_p]),
    "pl_kv_withdraw": (c_int, [c_void_p, c_char_p]),
    "pl_lr_range": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "pl_lr_range_release": (None, [c_void_p]),
    "pl_names_at": (c_char_p, [c_void_p, c_size_t]),
    "pl_names_count": (c_size_t, [c_void_p]),
    "pl_names_free": (None, [c_void_p]),
    "pl_names_load": (c_int, [c_void_p, c_char_p, c_void_p]),
    "pl_names_of_job": (c_int, [c_void_p, c_void_p]),
    "pl_net_all_state": (c_int, [c_void_p, c_void_p, c_void_p]),
    "pl_net_all_weights": (c_int, [c_void_p, c_void_p, c_void_p]),
    "pl_net_classes_of": (c_int, [c_void_p, c_void_p]),
    "pl_net_create": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "pl_net_form": (c_int, [c_void_p, c_uint32, c_uint32, c_uint32]),
    "pl_net_form_data": (c_int, [c_void_p, c_void_p, c_void_p]),
    "pl_net_form_text": (c_int, [c_void_p, c_void_p, c_void_p]),
    "pl_net_forward": (c_int, [c_void_p, c_void_p, c_size_t, c_char_p, c_void_p, c_size_t,
            c_void_p]),
    "pl_net_free": (None, [c_void_p]),
    "pl_net_load_some_weights": (c_int, [c_void_p, c_char_p]),
    "pl_net_load_weights": (c_int, [c_void_p, c_char_p]),
    "pl_net_predict": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t]),
    "pl_net_read": (c_int, [c_void_p, c_void_p, c_size_t, c_size_t, c_void_p, c_size_t]),
    "pl_net_sample": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "pl_net_save_weights": (c_int, [c_void_p, c_char_p]),
    "pl_net_set_training_data": (c_int, [c_void_p, c_char_p, c_uint32, c_uint32]),
    "pl_net_set_validation_data": (c_int, [c_void_p, c_char_p, c_uint32, c_uint32]),
    "pl_net_set_validation_data_of": (c_int, [c_void_p, c_void_p]),
    "pl_net_spec_create": (c_int, [c_void_p, c_char_p, c_void_p]),
    "pl_net_spec_free": (None, [c_void_p]),
    "pl_net_spec_job": (c_int, [c_void_p, c_void_p]),
    "pl_net_spec_judge": (c_int, [c_void_p, c_void_p]),
    "pl_net_spec_layers": (c_int, [c_void_p, c_uint32, c_uint32, c_uint32, c_void_p, c_void_p]),
    "pl_net_spec_load": (c_int, [c_void_p, c_char_p, c_void_p]),
    "pl_net_spec_record": (c_int, [c_void_p, c_void_p, c_void_p]),
    "pl_net_spec_text": (c_int, [c_void_p, c_void_p]),
    "pl_net_spec_zoo": (c_int, [c_void_p, c_char_p, c_void_p]),
    "pl_net_test": (c_int, [c_void_p, c_uint64, c_void_p]),
    "pl_net_train": (c_int, [c_void_p, c_uint64, c_void_p]),
    "pl_net_training_records": (c_size_t, [c_void_p]),
    "pl_net_validation_records": (c_size_t, [c_void_p]),
    "pl_net_weights": (c_int, [c_void_p, c_char_p, c_uint32, c_void_p]),
    "pl_net_weights_at": (c_int, [c_void_p, c_size_t, c_void_p]),
    "pl_net_weights_count": (c_size_t, [c_void_p]),
    "pl_plan": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "pl_plan_choose": (c_int, [c_void_p, c_void_p, c_void_p]),
    "pl_plan_is_wanted": (c_int, [c_void_p, c_void_p]),
    "pl_plan_release": (None, [c_void_p]),
    "pl_run": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "pl_shared_error": (None, [c_void_p, c_char_p, c_size_t]),
    "pl_shared_get": (c_int, [c_void_p, c_uint64, c_void_p, c_double]),
    "pl_shared_init": (c_int, [c_void_p, c_char_p, c_size_t, c_uint32, c_void_p, c_void_p]),
    "pl_shared_poll": (c_int, [c_void_p, c_uint64]),
    "pl_shared_round": (c_uint64, [c_void_p]),
    "pl_shared_submit": (c_int, [c_void_p, c_uint64, c_uint32, c_void_p]),
    "pl_sim": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "pl_spec_accuracy": (None, [c_void_p, c_char_p, c_char_p, c_char_p]),
    "pl_spec_batch_norm": (None, [c_void_p, c_char_p, c_char_p, c_void_p]),
    "pl_spec_concat": (None, [c_void_p, c_char_p, c_void_p, c_size_t]),
    "pl_spec_convolution": (None, [c_void_p, c_char_p, c_char_p, c_uint32, c_uint32, c_void_p]),
    "pl_spec_deconvolution": (None, [c_void_p, c_char_p, c_char_p, c_uint32, c_uint32, c_void_p]),
    "pl_spec_dropout": (None, [c_void_p, c_char_p, c_char_p, c_float]),
    "pl_spec_eltwise": (None, [c_void_p, c_char_p, c_int, c_void_p, c_size_t, c_void_p]),
    "pl_spec_inner_product": (None, [c_void_p, c_char_p, c_char_p, c_uint32, c_void_p]),
    "pl_spec_input": (None, [c_void_p, c_char_p, c_char_p, c_uint32, c_uint32, c_uint32]),
    "pl_spec_layer": (None, [c_void_p, c_char_p]),
    "pl_spec_loss_weight": (None, [c_void_p, c_float]),
    "pl_spec_lrn": (None, [c_void_p, c_char_p, c_char_p, c_void_p]),
    "pl_spec_pooling": (None, [c_void_p, c_char_p, c_char_p, c_int, c_uint32, c_uint32]),
    "pl_spec_pooling_global": (None, [c_void_p, c_char_p, c_char_p, c_int]),
    "pl_spec_pooling_padded": (None, [c_void_p, c_char_p, c_char_p, c_int, c_uint32, c_uint32,
            c_uint32]),
    "pl_spec_relu": (None, [c_void_p, c_char_p, c_char_p]),
    "pl_spec_scale": (None, [c_void_p, c_char_p, c_char_p, c_bool]),
    "pl_spec_sigmoid": (None, [c_void_p, c_char_p, c_char_p]),
    "pl_spec_softmax_loss": (None, [c_void_p, c_char_p, c_char_p, c_char_p]),
    "pl_stream_acquire": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "pl_stream_adopt": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, c_void_p]),
    "pl_stream_commit": (c_int, [c_void_p, c_size_t]),
    "pl_stream_cut": (c_int, [c_void_p, c_uint64]),
    "pl_stream_error": (c_char_p, [c_void_p]),
    "pl_stream_flush": (c_int, [c_void_p]),
    "pl_stream_free": (None, [c_void_p]),
    "pl_stream_open": (c_int, [c_void_p, c_char_p, c_void_p, c_void_p]),
    "pl_stream_seal": (c_int, [c_void_p]),
    "pl_survey": (c_int, [c_void_p, c_void_p, c_uint32, c_void_p, c_void_p]),
    "pl_team_algorithm": (c_char_p, [c_void_p, c_uint32]),
    "pl_team_all_gather": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "pl_team_allreduce": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_void_p]),
    "pl_team_broadcast": (c_int, [c_void_p, c_uint32, c_void_p, c_size_t, c_void_p]),
    "pl_team_close": (None, [c_void_p]),
    "pl_team_error": (c_char_p, [c_void_p, c_uint32]),
    "pl_team_gather": (c_int, [c_void_p, c_uint32, c_void_p, c_size_t, c_void_p]),
    "pl_team_open": (c_int, [c_void_p, c_void_p, c_void_p]),
    "pl_team_part": (c_size_t, [c_size_t, c_uint32, c_uint32]),
    "pl_team_rank": (c_uint32, [c_void_p]),
    "pl_team_reduce": (c_int, [c_void_p, c_uint32, c_void_p, c_size_t, c_void_p, c_void_p]),
    "pl_team_reduce_scatter": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_void_p]),
    "pl_team_size": (c_uint32, [c_void_p]),
    "pl_version": (c_char_p, []),
    "pl_weights_of_caffe": (c_int, [c_void_p, c_char_p, c_void_p]),
    "pl_work": (c_int, [c_void_p, c_void_p]),
    "pl_zoo_names": (c_void_p, []),
}
