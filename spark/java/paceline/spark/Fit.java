package paceline.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.functions;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One fit: it reads the rows into the executors, starts the run's driver here and workers there,
 * looks after both until the run is over, and leaves nothing behind but the session's leases. One thread uses it,
 * except for work, checkCores, executorLost, stop, end, admitsRows, offerRows and rowsTaken, which other threads call.
 */
final class Fit implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Fit.class);
    private static final int TICK_MS = 100;
    private static final int CLASSES_MAX = 1 << 20;
    private static final int KEY_BYTES = 32;
    /** An executor has room for four times as many: for those of lost ones, and where they are spread unevenly. */
    private static final int PARTITIONS_MAX = ExecutorStore.PARTITIONS_MAX / 4;
    /** Members whose connection has not ended: their leases run. */
    private static final Set<String> DROPPED = Set.of("hung", "cut", "fenced");
    /** A worker that has taken no step for so long hangs. Reads of shards may wait longer. */
    private static final String STALL_S = "10";
    private static final int REPLACED_WORKERS = 2; // the only worker, which is to leave, and the one in its place

    /** What the estimator wants. */
    static final class Plan {
        int minWorkers;
        boolean pauses; // while it has fewer
        int maxWorkers; // 0: one on each executor
        int patienceS;
        boolean skipsBad;
        boolean resumes;
        RecordSchema schema;
        JobFields job;
        Path directory; // the run's; it need not exist
        String shardDir; // empty: rows stay in the executors; LOCAL: shards do

        boolean hostsShards() {
            return shardDir.equals(Shards.LOCAL);
        }
    }

    private final JavaSparkContext context;
    private final DriverEnd plugin;
    private final Plan plan;
    private final PacelineSession session;
    private final LeaseManager leases;
    private final String id;
    private final String key = newKey();
    private final Queue<String> lostExecutors = new ConcurrentLinkedQueue<>();
    private final Map<String, Double> seconds = new LinkedHashMap<>();
    private final List<JsonNode> sets = new ArrayList<>();
    private final JobWatch watch; // of the jobs that read rows, until the fit trains

    private volatile String address; // of the run's driver
    private volatile String stopped; // the reason
    private volatile boolean ends; // at its next commit point
    private volatile int workers; // that there may be
    private int followed; // workers for the batch; without follow_batch all that there may be
    private volatile String folder = ""; // of this fit's shards; where executors have them, of the driver's own
    private volatile ShardRouter router; // to shards in executors
    private volatile RowPlaces places;
    private volatile LostRows lostRows;
    private Ingest ingest;
    private TrainingRun run;
    private long stepNs = System.nanoTime();

    Fit(PacelineSession session, Plan plan) {
        this.session = session;
        this.plan = plan;
        context = session.context();
        leases = session.leases();
        plugin = DriverEnd.get();
        id = session.begin();
        watch = new JobWatch(group(), plan.patienceS, plugin::hasExecutor, this::stopWithoutExecutor);
        context.sc().addSparkListener(watch);
        session.attach(this);
    }

    String id() {
        return id;
    }

    private String group() {
        return id + "-ingest";
    }

    /** The key of the run travels by Spark's RPC: others must not be able to ask for it. */
    static void checkSecurity(SparkConf conf) {
        boolean insecure = conf.getBoolean("spark.paceline.insecure", false)
                || conf.getBoolean("paceline.insecure", false);
        if (!insecure && !conf.getBoolean("spark.authenticate", false)) {
            throw new PacelineException("spark.authenticate is not true, so anyone who reaches the"
                    + " driver could join the run: set spark.authenticate=true, or"
                    + " spark.paceline.insecure=true in a network that you trust");
        }
    }

    static String newKey() {
        byte[] random = new byte[KEY_BYTES];
        new SecureRandom().nextBytes(random);
        StringBuilder text = new StringBuilder();
        for (byte b : random) {
            text.append(String.format("%02x", b));
        }
        return text.toString();
    }

    /** What a lease in that executor needs in order to train; null: it is not needed, or not yet. */
    String work(String executor) {
        if (address == null) {
            return null;
        }
        Set<String> holders = places.executors();
        boolean hasRows = holders.isEmpty() || holders.contains(executor);
        if (!hasRows && !lostRows.areMissing() && leases.executors().containsAll(holders)) {
            return null; // where rows have no lease, or some are lost, it is to find nothing, and to give its core
        }
        return String.join("\n", DriverEnd.JOIN, id, address, key, router == null ? folder : router.root(),
                plan.directory.toAbsolutePath().toString());
    }

    boolean keepsRowsInExecutors() {
        return plan.shardDir.isEmpty();
    }

    /** The session's leases wait. A job that reads rows may get no core, because they have all. */
    void checkCores() {
        if (stopped == null && address == null && watch.waits(plan.patienceS)) {
            stop("no core was free to read the rows for " + plan.patienceS + " s: give executors more cores than the"
                    + " session's leases have (spark.executor.cores, spark.task.cpus)");
        }
    }

    private void stopWithoutExecutor() {
        stop("no executor was there to read the rows for " + plan.patienceS + " s: ask Spark for some"
                + " (spark.dynamicAllocation.maxExecutors, spark.cores.max), or look at the log of its workers");
    }

    void executorLost(String executor) {
        lostExecutors.add(executor);
        if (keepsRowsInExecutors() || plan.hostsShards()) {
            leases.executorLost(executor);
        }
    }

    /** The run is to end after its next exchange, with a model. */
    void end() {
        ends = true;
    }

    /** The fit is to fail with this message. */
    void stop(String reason) {
        stopped = reason;
        if (address == null) {
            context.cancelJobGroup(group());
        }
    }

    /** Throw with the reason for which the fit was stopped, if it was. */
    void checkStopped() {
        if (stopped != null) {
            throw new PacelineException(stopped);
        }
    }

    /** Find what the user has not given: the length of a record, and the number of classes. */
    RecordSchema inspect(Dataset<Row> rows, RecordSchema.Source source, int[] shape, int textLength, int classes) {
        JobGroup jobs = new JobGroup(context, group(), "Paceline looks at the rows");
        try {
            int[] found = shape;
            if (found == null && source == RecordSchema.Source.STRING) {
                found = new int[] {1, 1, textLength};
            } else if (found == null) {
                // By the RDD that is read afterwards: a query of its own would shuffle for the same rows once more.
                List<Row> first = rows.javaRDD().filter(row -> !row.isNullAt(Ingest.FEATURES)).take(1);
                if (first.isEmpty()) {
                    throw new PacelineException("there is no row to train on");
                }
                found = RecordSchema.guessShape(RowPacker.length(source, first.get(0), Ingest.FEATURES));
            }
            return new RecordSchema(source, found, classes > 0 ? classes : highestLabel(rows) + 1);
        } finally {
            jobs.leave();
        }
    }

    private static int highestLabel(Dataset<Row> rows) {
        Row most = rows.agg(functions.max(rows.col(rows.columns()[Ingest.LABEL]))).first();
        double label = most.isNullAt(0) ? -1 : ((Number) most.get(0)).doubleValue();
        if (!(label >= 0 && label < CLASSES_MAX)) {
            throw new PacelineException("the highest label is " + label
                    + "; labels must be numbers from 0 to classes - 1");
        }
        return (int) label;
    }

    /** May a partition lie in that executor? */
    boolean admitsRows(String executor) {
        return places.admits(executor);
    }

    /** Rows of lost executors for one that has come in their place, and finds them on its host. */
    String offerRows(String executor, Set<String> living) {
        LostRows lost = lostRows;
        return lost == null ? DriverEnd.DECLINE : lost.offer(executor, plan.schema, living);
    }

    void rowsTaken(String executor, String partitions) {
        lostRows.take(executor, RowsOffer.split(partitions));
    }

    /** Wait for executors, so that no job does, and find out how many workers there may be. */
    void begin() {
        if (plan.job.followsBatch() && plan.shardDir.isEmpty()) {
            throw new PacelineException("job: with follow_batch a fit begins with minWorkers, and rows that lie in"
                    + " executors without a worker would not be trained on: set shardDir");
        }
        workers = awaitExecutors();
    }

    /** Train on rows with the columns that Ingest names. */
    PacelineSummary train(Dataset<Row> rows) throws IOException {
        places = placesWithLeases();
        endStep("executors");
        if (plan.hostsShards()) {
            folder = Files.createTempDirectory("paceline-shards-").toString();
            router = new ShardRouter(context.getConf().get("spark.driver.host"));
        } else if (!plan.shardDir.isEmpty()) {
            folder = Files.createDirectories(Path.of(plan.shardDir, id)).toAbsolutePath().toString();
        }
        boolean holdsOut = plan.job.heldOut() > 0 && keepsRowsInExecutors(); // of files each node holds the same out
        ingest = new Ingest(context, id, group(), spread(holdsOut ? holdOut(rows) : rows), plan.schema, plan.skipsBad,
                plan.hostsShards() ? Shards.LOCAL : folder, places::setUnable);
        lostRows = new LostRows(context.getConf(), ingest, places, lostExecutors, plan.hostsShards());
        places.beginIngest(ingest.partitions());
        ingest.readAll(TimeUnit.SECONDS.toMillis(plan.patienceS), lostRows::forget);
        if (ingest.records() == 0) {
            throw new PacelineException("there is no row to train on, beside " + ingest.bad()
                    + " bad ones");
        }
        if (holdsOut && ingest.held().isEmpty()) {
            throw new PacelineException("validation: no row could be held out, because equal rows stay together");
        }
        endStep("ingest");
        endWatch();
        places.beginTraining();
        followed = plan.job.followsBatch() ? Math.max(1, plan.minWorkers) : workers;
        leases.begin(wantedWorkers(), places::executors, this::hasShards,
                plan.hostsShards() ? executor -> { } : lostExecutors::add);
        startRun();
        while (!run.poll(TICK_MS)) {
            lookAfterWorkers();
        }
        run.poll(0);
        if (run.status() != 0) {
            throw new PacelineException("training failed: " + run.message());
        }
        endStep("training");
        return new PacelineSummary(run.report(), run.end(), sets, seconds, ingest.records(),
                ingest.bad(), leases.resubmitted());
    }

    private void endWatch() {
        watch.close();
        context.sc().removeSparkListener(watch);
    }

    private Dataset<Row> holdOut(Dataset<Row> rows) throws IOException {
        JobGroup jobs = new JobGroup(context, group(), "Paceline chooses rows for validation");
        try {
            return HoldOut.mark(rows, plan.job.heldOut(), plan.schema.classes);
        } finally {
            jobs.leave();
        }
    }

    /** Where executors have shards, a worker needs all in order to begin, and its core to read those that are lost. */
    private boolean hasShards() {
        return !plan.hostsShards() || !lostRows.areMissing();
    }

    private int wantedWorkers() {
        return plugin.workers(Math.max(1, plan.minWorkers), workers, followed);
    }

    /** A worker without records cannot train. Rows that Spark would read in an executor without a worker move. */
    private JavaRDD<Row> spread(Dataset<Row> rows) {
        JobGroup jobs = new JobGroup(context, group(), "Paceline plans to read the rows"); // Spark may shuffle now
        try {
            boolean moves = rows.javaRDD().getNumPartitions() < workers || workers < plugin.ready()
                    || (keepsRowsInExecutors() && liesInFewer(rows.rdd()));
            if (moves) {
                return rows.repartition(workers * 2).javaRDD();
            }
            boolean tooMany = keepsRowsInExecutors() && rows.rdd().getNumPartitions() > workers * PARTITIONS_MAX;
            return (tooMany ? rows.coalesce(workers * PARTITIONS_MAX) : rows).javaRDD();
        } finally {
            jobs.leave();
        }
    }

    /** Spark reads cached rows in the executors that have them. Are these fewer than there may be workers? */
    private boolean liesInFewer(RDD<Row> rows) {
        Set<String> places = new HashSet<>();
        for (int i = 0; i < rows.getNumPartitions(); i++) {
            String place = context.sc().getPreferredLocs(rows, i).mkString("", " ", "");
            if (!place.startsWith("executor_")) {
                return false; // Spark reads this one anywhere
            }
            places.add(place);
        }
        return places.size() < workers;
    }

    /** Rows of a session's later fit lie where its leases are, as far as there are any. */
    private RowPlaces placesWithLeases() {
        return new RowPlaces(Math.max(1, plan.minWorkers), workers, session.executors().stream()
                .limit(keepsRowsInExecutors() ? workers : 0).collect(Collectors.toSet()));
    }

    private void endStep(String name) {
        long now = System.nanoTime();
        seconds.put(name, (now - stepNs) / 1e9);
        stepNs = now;
    }

    /** Wait for executors with the library. Returns how many workers there may be. */
    private int awaitExecutors() {
        if (context.getConf().getBoolean("spark.dynamicAllocation.enabled", false)) {
            if (plan.shardDir.isEmpty() || plan.maxWorkers == 0) {
                throw new PacelineException("spark.dynamicAllocation.enabled is true: rows that lie in executors"
                        + " would be lost when Spark takes an idle one away, and no number of executors is known:"
                        + " set shardDir and maxWorkers, or spark.dynamicAllocation.enabled=false");
            }
            return plan.maxWorkers; // a lease that waits is Spark's reason to start an executor
        }
        int least = Math.max(1, plan.minWorkers);
        long from = System.nanoTime();
        while (plugin.ready() < Math.max(least, plan.maxWorkers)) {
            double waited = (System.nanoTime() - from) / 1e9;
            if (plugin.failure() != null && plugin.ready() < least) {
                throw new PacelineException(
                        "an executor could not load the library: " + plugin.failure());
            }
            if (waited > plan.patienceS) {
                if (plugin.ready() >= least) {
                    break;
                }
                throw new PacelineException(plugin.ready() + " executors after " + (long) waited
                        + " s, and minWorkers is " + least + ": ask Spark for more (spark.cores.max,"
                        + " spark.executor.instances), or look at the log of its workers");
            }
            pause();
        }
        return plan.maxWorkers > 0 ? plan.maxWorkers : plugin.ready();
    }

    private void pause() {
        checkStopped();
        try {
            Thread.sleep(TICK_MS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new PacelineException("interrupted");
        }
    }

    private void startRun() throws IOException {
        run = new TrainingRun(this::observe);
        if (folder.isEmpty()) {
            boolean holdsOut = !ingest.held().isEmpty();
            run.addRecords(Engine.ROWS, plan.schema, holdsOut ? ingest.held() : ingest.sample());
            plan.job.setRecords("train_data", "memory", JobFields.growingMemory(Engine.ROWS), plan.schema);
            plan.job.add("local_data", "true");
            plan.job.add("driver_validates", Boolean.toString(holdsOut));
            plan.job.add("epoch_records", Long.toString(ingest.records()));
        } else {
            String files = router == null ? Shards.number(folder, ingest.shards()) : router.begin(ingest);
            plan.job.setRecords("train_data", "shards", "{shards: " + JobFields.quoted(files) + "}", plan.schema);
        }
        List<PackedRows> test = ingest.test();
        if (!test.isEmpty() && folder.isEmpty()) {
            run.addRecords(TrainingRun.TEST, plan.schema, test);
            plan.job.setRecords("test_data", "memory", JobFields.memory(TrainingRun.TEST), plan.schema);
        } else if (!test.isEmpty()) { // workers compare their test data with the driver's
            String file = Shards.write(folder + "/" + TrainingRun.TEST, plan.schema, test);
            plan.job.setRecords("test_data", "shards", "{shards: " + JobFields.quoted(router == null ? file
                    : router.serve(Path.of(file))) + "}", plan.schema);
        }
        plan.job.add("workers_min", Integer.toString(Math.max(1, plan.minWorkers)));
        plan.job.add("workers_max", Integer.toString(Math.max(workers, REPLACED_WORKERS)));
        if (plan.shardDir.isEmpty() && !plan.job.sets("stall_seconds")) { // records are in memory, or in files here
            plan.job.add("stall_seconds", STALL_S);
        }
        if (plan.pauses) {
            plan.job.add("pause_below", Integer.toString(plan.minWorkers));
            plan.job.add("pause_patience_seconds", Integer.toString(plan.patienceS));
        }
        List<String> options = new ArrayList<>(List.of("out=" + plan.directory, "key=" + key,
                "listen=" + context.getConf().get("spark.driver.host") + ":0",
                "patience=" + plan.patienceS));
        if (plan.resumes) {
            options.add("resume=1");
        }
        run.start(plan.job.file(), plan.job.overrides(), options);
        while (run.address() == null && !run.poll(TICK_MS)) {
            continue;
        }
        address = run.address();
    }

    private void observe(JsonNode event) {
        switch (event.path("kind").asText()) {
            case "member":
                LOG.info("{}", event);
                String what = event.path("what").asText();
                if (what.equals("join")) {
                    leases.workerJoined();
                } else if (DROPPED.contains(what)) {
                    leases.workerDropped(event.path("node").asInt());
                }
                break;
            case "progress":
                leases.setMembers(event.path("workers").asInt());
                break;
            case "paused":
            case "resumed":
                LOG.info("{}", event);
                break;
            case "want_workers":
                LOG.info("{}", event);
                followed = event.path("workers").asInt();
                break;
            case "records":
                sets.add(event);
                break;
            case "warning":
                LOG.warn("{}", event.path("text").asText());
                break;
            default:
                LOG.debug("{}", event);
                break;
        }
    }

    private void lookAfterWorkers() {
        checkStopped();
        if (Thread.currentThread().isInterrupted()) {
            throw new PacelineException("interrupted while training; with checkpointDir another fit continues");
        }
        if (ends) {
            run.stop(TrainingRun.STOP_SOON);
        }
        if (lostRows.tick(plugin.readyExecutors(), leases.takeNeed())) {
            leases.rowsArrived();
        }
        if (router != null) {
            ingest.checkUnchanged();
            router.update();
        }
        leases.setTarget(wantedWorkers());
        leases.tick();
    }

    /** End everything but the session's leases, whether the run has ended well or not. */
    @Override
    public void close() throws IOException {
        boolean interrupted = Thread.interrupted();
        session.detach();
        try {
            if (lostRows != null) {
                lostRows.close();
            }
            if (run != null) {
                run.close();
            }
        } finally {
            session.end();
            endWatch();
            if (ingest != null) {
                ingest.close();
            }
            if (router != null) {
                router.close();
            }
            if (!folder.isEmpty()) {
                Shards.delete(Path.of(folder));
            }
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
