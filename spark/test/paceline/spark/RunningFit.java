package paceline.spark;

import static paceline.spark.SparkTest.await;
import static paceline.spark.SparkTest.exchanges;
import static paceline.spark.SparkTest.members;
import static paceline.spark.TestCases.check;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.FutureTask;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;

/** A fit that trains in the background until the test stops it. */
final class RunningFit {
    static final String SYNC = "sync { tau: 4 }";
    /** A machine that other work holds up takes so many times as long as it may. */
    static final double LOADED = 4;

    /** The leases that run, by name of their job group. */
    static final class Leases extends SparkListener {
        final Map<Integer, String> ofStage = new ConcurrentHashMap<>();
        final Map<String, Long> task = new ConcurrentHashMap<>();
        final Map<String, String> executor = new ConcurrentHashMap<>();
        final Map<String, Integer> profile = new ConcurrentHashMap<>(); // of executors; 0: the application's
        final List<Long> executorAddedNs = new CopyOnWriteArrayList<>();

        @Override
        public void onStageSubmitted(SparkListenerStageSubmitted stage) {
            String group = stage.properties().getProperty("spark.jobGroup.id");
            if (group != null && group.contains("-lease-")) {
                ofStage.put(stage.stageInfo().stageId(), group);
            }
        }

        @Override
        public void onTaskStart(SparkListenerTaskStart start) {
            String lease = ofStage.get(start.stageId());
            if (lease != null) {
                task.put(lease, start.taskInfo().taskId());
                executor.put(lease, start.taskInfo().executorId());
            }
        }

        @Override
        public void onTaskEnd(SparkListenerTaskEnd end) {
            String lease = ofStage.get(end.stageId());
            if (lease != null) {
                task.remove(lease, end.taskInfo().taskId());
            }
        }

        @Override
        public void onExecutorAdded(SparkListenerExecutorAdded added) {
            executorAddedNs.add(System.nanoTime());
            profile.put(added.executorId(), added.executorInfo().resourceProfileId());
        }

        @Override
        public void onExecutorRemoved(SparkListenerExecutorRemoved removed) {
            profile.remove(removed.executorId());
        }

        /** Executors for leases alone, or for all else. */
        long executors(boolean forLeases) {
            return profile.values().stream().filter(id -> id > 0 == forLeases).count();
        }
    }

    private final SparkTest base;
    private final FutureTask<PacelineModel> fit;
    final Path events;

    /** It trains with that strategy, and writes below a folder of that name. */
    RunningFit(SparkTest base, PacelineEstimator estimator, String name, String strategy) throws Exception {
        this.base = base;
        Path directory = base.folder.resolve(name);
        events = directory.resolve("run").resolve("events.jsonl");
        estimator.setCheckpointDir(directory.toString())
                .setJob(estimator.getJob().replace("epochs: 3", "seconds: 600").replace(SYNC, strategy));
        fit = SparkTest.inBackground(() -> estimator.fit(base.rows));
        reach("its first exchanges", () -> exchanges(events).size() > 20);
    }

    /** Wait for that, and return the seconds that it took. */
    double reach(String what, Callable<Boolean> condition) throws Exception {
        long from = System.nanoTime();
        await(() -> fit.isDone() || condition.call());
        if (fit.isDone()) {
            fit.get();
        }
        check(!fit.isDone(), "the fit ended before " + what);
        return seconds(from);
    }

    static double seconds(long fromNs) {
        return (System.nanoTime() - fromNs) / 1e9;
    }

    long count(String what) throws IOException {
        return members(events, what);
    }

    /** Stop it, and check what it has. */
    PacelineSummary end(int workers) throws Exception {
        PacelineControl.stop();
        PacelineModel model = fit.get();
        PacelineSummary summary = model.summary();
        check(summary.workers() == workers, "workers: " + summary.json());
        long right = model.transform(base.rows.filter("held")).filter("prediction = label").count();
        check(right > SparkTest.TEST * 0.9, right + " of the predictions are right");
        base.expectNothingRuns();
        return summary;
    }

    void expectNoLoss() throws IOException {
        check(count("dead") + count("cut") == 0, "a worker was lost");
    }

    double longestGap() throws IOException {
        List<Double> times = exchanges(events);
        double gap = 0;
        for (int i = 1; i < times.size(); i++) {
            gap = Math.max(gap, times.get(i) - times.get(i - 1));
        }
        return gap;
    }
}
