package paceline.spark;

import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.nio.charset.StandardCharsets;

/**
 * The library's functions. {@link NativeLibrary#load} must have returned before any of them is called.
 *
 * <p>A status is 0 or negative; a function that opens something returns its handle, above 0, or a status. {@link
 * #message} explains the last failed call of the calling thread. A handle that is closed, or was never one, is
 * ERR_USAGE, and so is a handle that another thread uses. An engine serves one thread at a time, and so does all that
 * was opened with it, except: taskSignal, taskPoll, engineLog, sharedSubmit, sharedGet and sharedRound, which any
 * thread may call at any time; and a stream that grows, which a thread of its own may use.
 *
 * <p>A ByteBuffer is direct, in native byte order, and used from its byte 0 on, whatever its position.
 */
final class Native {
    private Native() {}

    static final int ERR_TIMEOUT = -1;
    static final int ERR_FULL = -2;
    static final int ERR_STOP = -3;
    static final int ERR_PEER = -30;
    static final int ERR_INPUT = -60;
    static final int ERR_USAGE = -61;
    static final int ERR_NOT_FOUND = -62;
    static final int ERR_UNSUPPORTED = -63;
    static final int ERR_NOMEM = -80;
    static final int ERR_IO = -81;
    static final int ERR_DIVERGED = -82;
    /** The library has failed a check of its own: all that can be done with the engine is to close it. */
    static final int ERR_BUG = -99;

    static String message() {
        return new String(messageBytes(), StandardCharsets.UTF_8);
    }

    private static native byte[] messageBytes();

    /**
     * The process is about to end: each run stops at once, each worker leaves, and no call can begin that computes.
     * Returns how many objects are still in use.
     */
    static native int endCalls();

    /**
     * Close an object. A stream's records are forgotten; a team is left, and ends with its coordinator. ERR_USAGE while
     * a call with it is in progress, taskMain included, or while something is open that was opened with it.
     */
    static native int close(long handle);

    // ---- engines

    static final int LOG_DEBUG = 0;
    static final int LOG_INFO = 1;
    static final int LOG_WARN = 2;
    static final int LOG_ERROR = 3;

    static native long engineCreate(int logLevel);

    /** The bytes of a buffer for engineLog and taskPoll, at least. */
    static final int LINES_BYTES = 32 << 10;

    /**
     * Whole lines of log, in UTF-8, each with its level's digit and a space in front. Returns their bytes; 0: there are
     * none. Lines that nobody collects in time are dropped, and counted by a line.
     */
    static native int engineLog(long engine, ByteBuffer lines);

    // ---- tasks

    /**
     * A run, as its driver. `job` is a job file's path; null: an empty job, or with `resume=1` that of the directory.
     * Each override is FIELD=VALUE, as after --job. Options: out=PATH, resume=1, force_change=1, take_over=1,
     * dry_run=1, listen=HOST:PORT, port=N, key=TEXT, insecure=1, patience=SECONDS, max_mbit=N, trace=PATH. Nothing is
     * opened before taskMain. With `resume=1` it waits for no worker of an earlier driver.
     */
    static native long runOpen(long engine, String job, String[] overrides, String[] options);

    /**
     * A worker. Options: key=TEXT, threads=N, nice=N, retry=SECONDS, listen=HOST:PORT, advertise=HOST:PORT,
     * data_root=DIR, data_urls=URL, cache=DIR, max_mbit=N, insecure=1, one_machine=1.
     */
    static native long workOpen(long engine, String driver, String[] options);

    /**
     * The job of a run with the default of every field, as text in UTF-8; null: something is wrong with it, see
     * message().
     */
    static native byte[] taskJob(long task);

    /** Run or work on the calling thread until it is over; once. The engine is in use meanwhile. */
    static native int taskMain(long task);

    /** Of a run: 1: it ends at its next commit point; 2: at once. */
    static final int STOP = 0;
    /** Of a run: the number of workers; 0: as many as the job allows. */
    static final int WORKERS = 1;
    /** Of a worker, 1: leave the run in good order. */
    static final int LEAVE = 2;
    /** Of a worker, 1: leave, and wait; 0: join again. */
    static final int PAUSE = 3;

    /** ERR_USAGE: the task has no such signal. Any thread, at any time. */
    static native int taskSignal(long task, int what, int value);

    /**
     * Whole lines of JSON, in UTF-8, with a `kind`. Returns their bytes; 0: there are none. A run has the events of
     * docs/EVENTS.md, and listens (address), directory (path), progress, stopping (stage) and report, the last line of
     * a run that taskMain ends with 0. A worker has work (stage: joined, training, left or over). Of progress and of
     * work with stage training only the newest line is kept. Until close.
     */
    static native int taskPoll(long task, ByteBuffer lines);

    // ---- records

    static final int U8 = 0;
    static final int F32 = 1;
    static final int I32 = 2;
    static final int I64 = 3;
    static final int BF16 = 4;

    /**
     * Records that jobs of the engine call `memory:NAME`; of a vector: its length, 1, 1. `memory`: bytes of values kept
     * in memory, the others are in a file of `folder` (null: the system's); 0: all. A stream that grows can be read
     * while it is filled; `hash` is the identity of its records, 0: no other worker has them. One that grows in parts
     * can be read as far as streamCut was called. With KEPT `folder` is the path of the file, which has all records and
     * a name, and `hash` the identity of what they belong to, by which streamAdopt knows them.
     */
    static native long streamOpen(long engine, String name, int channels, int height, int width, int classes, int type,
            long memory, String folder, int growth, long hash);

    /** streamOpen: it can be read when it is sealed; while it is filled; in whole parts; the same, and it is kept. */
    static final int COMPLETE = 0;
    static final int GROWS = 1;
    static final int PARTS = 2;
    static final int KEPT = 3;

    /**
     * Memory for the next records, whole ones, to be filled from the front: next[0] for their values, and next[1] for
     * their labels of 4 bytes, null if they have none. It is gone with the next call with the stream: a write to it
     * after that is an error that nothing detects.
     */
    static native int streamNext(long stream, ByteBuffer[] next);

    /** The first `count` of these records are complete. ERR_INPUT: a label that is no class, and none counts. */
    static native int streamCommit(long stream, int count);

    /**
     * The records since the last call are a part with this identity: a run counts the samples of equal parts together,
     * wherever they are. ERR_USAGE: there are no records; ERR_FULL: it has 256 parts.
     */
    static native int streamCut(long stream, long hash);

    /**
     * Take parts, which have these identities and numbers of records, from the file that a stream of a process has kept
     * which has ended; adopted[i]: part i was there, whole and sound. ERR_USAGE: its process lives; ERR_INPUT: the file
     * was refused, or as much of it as is damaged.
     */
    static native int streamAdopt(long stream, String path, long[] hashes, long[] records, boolean[] adopted);

    /** No record follows: close the stream, whose records stay. On an error it is still open. */
    static native int streamSeal(long stream);

    /** Forget the records of a sealed stream. ERR_USAGE: there are none of that name, or a net uses them. */
    static native int unbind(long engine, String name);

    /** Write the records of a SPEC to shards, PREFIX-00000.shard and so on. The number of records, or a status. */
    static native long pack(long engine, String spec, String prefix);

    // ---- models

    /** modelOpen: the scores are probabilities of classes. */
    static final int PROBABILITIES = 1;
    /** modelOpen: the scores are no scores of classes, but predicted values. */
    static final int VALUES = 2;

    /**
     * A model of a run, from the paths of its job.prototxt and of its weights. shape[0..2] are channels, height and
     * width of the records that modelPredict gets, of type `type`, before the job's maps (scale, mean, crop), which are
     * applied to them; 0, 0, 0: those that the net states. On return shape[0..2] are these numbers, shape[3] is the
     * number of scores of a record, shape[4] flags. `threads`: 0: all cores; `batch`: records at a time.
     */
    static native long modelOpen(long engine, String job, String weights, int type, int threads, int batch,
            int[] shape);

    /** The scores, floats, of the first `count` records. */
    static native int modelPredict(long model, ByteBuffer records, int count, ByteBuffer scores);

    // ---- nets

    /**
     * A net with its initial weights. `net` is the field of a job, as an override of runOpen has it: net={zoo:
     * 'lenet'}. Options: solver=TEXT of a solver.prototxt, batch=N, seed=N, threads=N, kernels=NAME. shape[0..2] are
     * channels, height and width of its records; 0, 0, 0: those that the net states. On return shape[0..2] are these
     * numbers, and shape[3] is the number of classes.
     */
    static native long netOpen(long engine, String net, String[] options, int[] shape);

    /** Train on the records of a SPEC, or test with them, from now on. */
    static native int netData(long net, String spec, boolean training);

    /** loss[0]: the mean of these steps. */
    static native int netTrain(long net, long steps, double[] loss);

    /** result[0]: the share of records that are wrong; below 0: unknown; result[1]: the mean loss. Steps 0: all. */
    static native int netTest(long net, long steps, double[] result);

    /**
     * The values of a blob for the first `count` records, floats, in the test phase. Returns how many it has for each
     * record, or a status; `count` 0 asks for that number alone.
     */
    static native int netForward(long net, ByteBuffer records, int count, String blob, ByteBuffer out);

    /** How many tensors of weights there are; the last one is the state, such as running means, if the net has any. */
    static native int netTensors(long net);

    /** netTensor: the number of elements of `shape`. */
    static final int TENSOR_INTS = 10;

    /**
     * The name of the layer of tensor i, in UTF-8, empty for the state; null: see message(). shape[0] is its number
     * within the layer (0: weights, 1: biases), shape[1] the number of its dimensions, shape[2] and on are these.
     */
    static native byte[] netTensor(long net, int i, int[] shape);

    /** Copy `count` floats of tensor i, from float `from` on, to a buffer; with `write`, from the buffer. */
    static native int netCopy(long net, int i, long from, ByteBuffer floats, int count, boolean write);

    /** Take the weights from a file, safetensors or caffemodel; with `save`, write one. */
    static native int netFile(long net, String path, boolean save);

    // ---- teams and their shared variables

    /**
     * Join a team, and wait until all members have, or coordinate it with members=N. Other options: members_max=N,
     * listen=HOST:PORT, key=TEXT, timeout=SECONDS, insecure=1.
     */
    static native long teamOpen(long engine, String rendezvous, String[] options);

    static final int SUM = 0;
    static final int MEAN = 1;
    static final int MAX = 2;
    static final int MIN = 3;

    /**
     * The number of the team's variable of that key, with n floats and so many tasks, or a status. The coordinator is
     * asked, and makes it where there is none.
     */
    static native int sharedOpen(long team, String key, long n, int tasks, int reduction);

    /**
     * Submit a copy of the task's vector: an array, or, where it is null, a direct buffer from its float 0 on, whatever
     * its position. The first vector of a task counts, and none of a round that is done.
     */
    static native int sharedSubmit(long team, int variable, long round, int task, float[] array, FloatBuffer direct);

    /** Copy the round's result to `out`, null: only wait for it. ERR_TIMEOUT, ERR_NOT_FOUND: it is no longer kept. */
    static native int sharedGet(long team, int variable, long round, float[] out, int millis);

    /** The first round that is not done here. It frees the copies of vectors for earlier ones. */
    static native long sharedRound(long team, int variable);
}
