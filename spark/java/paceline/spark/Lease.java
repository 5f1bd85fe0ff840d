package paceline.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;

/**
 * The task by which Spark lends a worker its place, for one fit of its session after the other. A thread of its own
 * trains inside the library; the task's thread watches for Spark's wish to have the place back, and between fits it
 * asks for work. It returns a result for each ordinary failure, because Spark would repeat a task that throws at once,
 * four times.
 */
final class Lease implements FlatMapFunction<Iterator<Integer>, Lease.Result> {
    private static final long serialVersionUID = 1;
    private static final long POLL_MS = 100;
    private static final long ASK_MS = 200;
    private static final long LEAVE_MS = 5000;
    private static final int ASK_POLLS = 5; // the driver is asked whether the lease is to end
    private static final String RETRY_S = "10";

    /** How a lease ended. */
    enum Outcome {
        OVER, // the session needs it no longer
        LEFT, // it left the run in good order
        EMPTY, // its executor has no records, or another lease trains on them
        DECLINED, // its host is in quarantine
        FAILED,
        BROKEN // so has its engine, which can only be closed, and its records are gone
    }

    static final class Result implements Serializable {
        private static final long serialVersionUID = 1;
        final Outcome outcome;
        final String executor;
        final String host;
        final String message;

        Result(Outcome outcome, String executor, String host, String message) {
            this.outcome = outcome;
            this.executor = executor;
            this.host = host;
            this.message = message;
        }
    }

    private final String session;
    private final String name;

    Lease(String session, String name) {
        this.session = session;
        this.name = name;
    }

    @Override
    public Iterator<Result> call(Iterator<Integer> numbers) {
        String executor = "";
        String host = "";
        Result result;
        try {
            ExecutorEnd end = ExecutorEnd.get();
            executor = end.id();
            host = SparkEnv.get().blockManager().blockManagerId().host();
            result = serve(end, executor, host);
        } catch (Exception thrown) {
            result = new Result(Outcome.FAILED, executor, host, String.valueOf(thrown.getMessage()));
        }
        return Collections.singletonList(result).iterator();
    }

    /** Train in one run after the other, until the driver or Spark does not want it any more, or one fails. */
    private Result serve(ExecutorEnd end, String executor, String host) throws Exception {
        String over = ""; // the fit whose run it has seen end, which the driver may learn later
        while (!TaskContext.get().isInterrupted()) {
            String[] reply = end.ask(DriverEnd.JOIN, session, name, host).split("\n", -1);
            boolean joins = reply[0].equals(DriverEnd.JOIN);
            if (reply[0].equals(DriverEnd.WAIT) || (joins && reply[1].equals(over))) {
                Thread.sleep(ASK_MS);
            } else if (joins) {
                Result result = restored(train(reply, executor, host), reply[1]);
                if (end.ask(DriverEnd.ALIVE, reply[1]).equals(DriverEnd.OVER)) {
                    ExecutorStore.release(reply[1]);
                }
                if (result.outcome != Outcome.OVER) {
                    return result;
                }
                over = reply[1];
            } else {
                return new Result(reply[0].equals(DriverEnd.OVER) ? Outcome.OVER : Outcome.DECLINED, executor, host,
                        "");
            }
        }
        return new Result(Outcome.LEFT, executor, host, "");
    }

    /** Where a broken engine is replaced, the lease has only failed. */
    private static Result restored(Result result, String fit) {
        return result.outcome != Outcome.BROKEN || !ExecutorStore.restore(fit) ? result
                : new Result(Outcome.FAILED, result.executor, result.host, result.message);
    }

    /**
     * `reply`: JOIN, the fit, the address of the run's driver, its key; the folder of shards, the beginning of their
     * URLs, or nothing; and the run's directory, which this executor may see, too.
     */
    private Result train(String[] reply, String executor, String host) {
        if (!reply[4].isEmpty()) {
            Engine engine = ExecutorEnd.get().openEngine();
            return trainWith(engine, engine::close, reply, executor, host);
        }
        ExecutorStore store = ExecutorStore.find(reply[1]);
        Engine engine = store == null ? null : store.beginTraining();
        return engine == null ? new Result(Outcome.EMPTY, executor, host, "")
                : trainWith(engine, store::endTraining, reply, executor, host);
    }

    /** `giveBack` runs when no thread is in the library any more. */
    private Result trainWith(Engine engine, Runnable giveBack, String[] reply, String executor, String host) {
        Engine.Worker worker = null;
        try {
            worker = work(engine, reply, host);
            return watch(worker, executor, host);
        } catch (PacelineException failed) {
            return new Result(engine.usable() ? Outcome.FAILED : Outcome.BROKEN, executor, host, failed.getMessage());
        } finally {
            if (worker == null || worker.close()) {
                giveBack.run();
            } else {
                new LeftWorker(reply[1], engine, worker, giveBack).start();
            }
        }
    }

    private static Engine.Worker work(Engine engine, String[] reply, String host) {
        List<String> options = new ArrayList<>(List.of("key=" + reply[3], "retry=" + RETRY_S,
                "threads=" + TaskContext.get().cpus(), "listen=" + host + ":0", "run_directory=" + reply[5]));
        if (!reply[4].isEmpty()) {
            options.add((reply[4].startsWith("http:") ? "data_urls=" : "data_root=") + reply[4]);
        }
        return engine.work(reply[2], options);
    }

    /** Wait for the worker, and let it leave when its driver wants that, or when Spark ends the task. */
    private Result watch(Engine.Worker worker, String executor, String host) {
        TaskContext context = TaskContext.get();
        boolean leaves = false;
        long leaveBy = 0;
        int number = Engine.Worker.NO_NUMBER; // which the driver needs to know soon
        for (int polls = 1; !worker.ended(POLL_MS); polls++) {
            Thread.interrupted(); // Spark interrupts a task that it ends, and each wait would end at once
            boolean ends = context.isInterrupted();
            boolean asks = !leaves && (polls % ASK_POLLS == 0 || number == Engine.Worker.NO_NUMBER);
            number = asks ? worker.number() : number;
            if (!leaves && (ends || (asks && driverEndsIt(number)))) {
                worker.leave();
                leaves = true;
            }
            if (ends && leaveBy == 0) {
                leaveBy = System.nanoTime() + LEAVE_MS * 1_000_000;
            } else if (leaveBy != 0 && System.nanoTime() > leaveBy) {
                throw new PacelineException("the worker did not leave within " + LEAVE_MS + " ms");
            }
        }
        return new Result(outcome(worker.status(), leaves), executor, host, worker.message());
    }

    private boolean driverEndsIt(int worker) {
        try {
            return ExecutorEnd.get().ask(DriverEnd.ALIVE, session, name, Integer.toString(worker))
                    .equals(DriverEnd.LEAVE);
        } catch (Exception ignored) {
            return false; // Spark ends this task, or its driver is gone and the executor ends
        }
    }

    /** How a lease has ended whose worker returned that status. */
    static Outcome outcome(int status, boolean left) {
        switch (status) {
            case 0:
                return left ? Outcome.LEFT : Outcome.OVER;
            case Native.ERR_BUG:
                return Outcome.BROKEN;
            default:
                return Outcome.FAILED;
        }
    }
}
