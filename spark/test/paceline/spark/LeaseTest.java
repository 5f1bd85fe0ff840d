package paceline.spark;

import static paceline.spark.TestCases.check;
import static paceline.spark.TestCases.run;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.SparkConf;
import org.apache.spark.resource.ExecutorResourceRequest;
import org.apache.spark.resource.ResourceProfile;
import org.apache.spark.sql.RowFactory;
import paceline.spark.RestartPolicy.Record;

/** What is decided about leases, without an application. */
public final class LeaseTest {
    private static final long SECOND = 1000;
    private static final long MINUTE = 60 * SECOND;
    private static final String HOST = "host-a";

    private LeaseTest() {}

    public static void main(String[] arguments) throws Exception {
        run("test_pause_after_failures_doubles_to_a_minute", LeaseTest::pauseDoubles);
        run("test_failures_without_a_new_worker_are_bounded", LeaseTest::failuresAreBounded);
        run("test_host_is_in_quarantine_after_four_failures_a_minute", LeaseTest::hostIsInQuarantine);
        run("test_quarantine_doubles_to_an_hour", LeaseTest::quarantineDoubles);
        run("test_dropped_worker_has_time_to_join_again", LeaseTest::droppedWorkerHasTime);
        run("test_executor_that_calls_is_not_silent", LeaseTest::executorThatCallsIsNotSilent);
        run("test_rpc_without_authentication_is_refused", LeaseTest::openRpcIsRefused);
        run("test_end_of_worker_decides_outcome", LeaseTest::statusDecidesOutcome);
        run("test_broken_store_is_made_anew", LeaseTest::brokenStoreIsMadeAnew);
        run("test_rows_outlive_their_executor", LeaseTest::rowsOutliveTheirExecutor);
        run("test_leases_have_executors_of_their_own", LeaseTest::leasesHaveExecutorsOfTheirOwn);
        run("test_limit_of_rows", LeaseTest::limitIsTakenFromTheOverhead);
        run("test_parts_of_shards_are_served", ShardServerTest::partsAreServed);
        run("test_request_for_a_shard_is_redirected", ShardServerTest::requestIsRedirected);
        run("test_equal_rows_make_equal_shards", ShardServerTest::equalRowsMakeEqualShards);
        run("test_other_versions_of_spark_are_refused", LeaseTest::otherVersionsAreRefused);
    }

    private static void expect(Object value, Object expected, String what) {
        check(value.equals(expected), what + ": " + value + ", and not " + expected);
    }

    private static void pauseDoubles() {
        RestartPolicy policy = new RestartPolicy();
        Record lease = new Record();
        for (long pause : new long[] {1, 2, 4, 8, 16, 32, 60, 60}) {
            expect(policy.failed(lease, "", MINUTE) - MINUTE, pause * SECOND, "pause");
        }
        for (int i = 0; i < 100; i++) {
            expect(policy.failed(lease, "", 0), MINUTE, "a later pause");
        }
        expect(policy.failed(new Record(), "", 0), SECOND, "another lease's pause");
        Record empty = new Record();
        for (long pause : new long[] {100, 200, 400, 800, 1600, 3200, 5000, 5000}) {
            expect(policy.foundNothing(empty, 7) - 7, pause, "pause without records");
        }
    }

    private static void failuresAreBounded() {
        RestartPolicy policy = new RestartPolicy();
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < 10; i++) {
                policy.failed(new Record(), "", 0);
            }
            policy.foundNothing(new Record(), 0);
            policy.ended(0);
            expect(policy.exhausted(), 0, "failures that are too many");
            policy.workerJoined();
        }
        for (int i = 0; i < 11; i++) {
            policy.failed(new Record(), "", 0);
        }
        expect(policy.exhausted(), 11, "failures that are too many");
    }

    private static void failTimes(RestartPolicy policy, int times, long now) {
        for (int i = 0; i < times; i++) {
            policy.failed(new Record(), HOST, now);
        }
    }

    private static void hostIsInQuarantine() {
        RestartPolicy policy = new RestartPolicy();
        failTimes(policy, 3, 0);
        failTimes(policy, 1, MINUTE + 1); // those before are too old
        expect(policy.admits(HOST, MINUTE + 1), true, "admitted after old failures");
        failTimes(policy, 2, MINUTE + 2);
        expect(policy.admits(HOST, MINUTE + 2), true, "admitted after three failures");
        failTimes(policy, 1, 2 * MINUTE);
        expect(policy.admits(HOST, 2 * MINUTE), false, "admitted after four failures");
        expect(policy.admits("host-b", 2 * MINUTE), true, "another host admitted");
        expect(policy.admits(HOST, 3 * MINUTE - 1), false, "admitted within a minute");
        expect(policy.admits(HOST, 3 * MINUTE), true, "admitted after a minute");
        policy.workerJoined();
        failTimes(policy, 3, 3 * MINUTE);
        expect(policy.admits(HOST, 3 * MINUTE), true, "admitted after three new failures");
    }

    private static void quarantineDoubles() {
        RestartPolicy policy = new RestartPolicy();
        long now = 0;
        for (long minutes : new long[] {1, 2, 4, 8, 16, 32, 60, 60}) {
            failTimes(policy, 4, now);
            expect(policy.admits(HOST, now + minutes * MINUTE - 1), false, "admitted before " + minutes + " minutes");
            now += minutes * MINUTE;
            expect(policy.admits(HOST, now), true, "admitted after " + minutes + " minutes");
        }
    }

    private static void droppedWorkerHasTime() {
        RestartPolicy policy = new RestartPolicy();
        policy.beginRun();
        policy.workerDropped(3, SECOND);
        policy.workerDropped(3, 5 * SECOND); // the same one
        expect(policy.overdue(3, 3 * SECOND, 2 * SECOND), Long.MAX_VALUE, "in time");
        expect(policy.overdue(3, 3 * SECOND + 1, 2 * SECOND), SECOND, "lost since");
        expect(policy.overdue(4, MINUTE, 2 * SECOND), Long.MAX_VALUE, "a worker that was not dropped");
        policy.beginRun();
        expect(policy.overdue(3, MINUTE, 2 * SECOND), Long.MAX_VALUE, "a worker of the next run");
    }

    private static void executorThatCallsIsNotSilent() {
        DriverEnd driver = new DriverEnd();
        long before = System.nanoTime();
        driver.receive(DriverEnd.ALIVE + "\n1\n");
        check(driver.hasCalled("1", before), "executor 1 has called");
        check(!driver.hasCalled("1", System.nanoTime() + 1), "executor 1 has called since");
        check(!driver.hasCalled("2", before), "executor 2 has called");
    }

    private static void expectProfile(ResourceProfile profile, long cores, long memory, long overhead, long cpus) {
        String[] names = {"cores", "memory", "memoryOverhead"};
        long[] amounts = {cores, memory, overhead};
        for (int i = 0; i < names.length; i++) {
            ExecutorResourceRequest has = profile.executorResourcesJMap().get(names[i]);
            expect(has == null ? 0 : has.amount(), amounts[i], names[i]);
        }
        expect((long) profile.taskResourcesJMap().get("cpus").amount(), cpus, "cpus");
    }

    private static void leasesHaveExecutorsOfTheirOwn() {
        check(LeaseProfile.of(conf()) == null, "a profile without dynamic allocation");
        String dynamic = "spark.dynamicAllocation.enabled";
        expectProfile(LeaseProfile.of(conf(dynamic, "true")), 0, 1024, 0, 1);
        ResourceProfile same = LeaseProfile.of(conf(dynamic, "true", "spark.executor.cores", "4",
                "spark.executor.memory", "2g", "spark.executor.memoryOverhead", "600m", "spark.task.cpus", "2"));
        expectProfile(same, 4, 2048, 600, 2);
        ResourceProfile own = LeaseProfile.of(conf(dynamic, "true", "spark.executor.cores", "4",
                "spark.task.cpus", "2", LeaseProfile.CORES, "2", LeaseProfile.MEMORY, "3g", LeaseProfile.OVERHEAD, "1g"));
        expectProfile(own, 2, 3072, 1024, 2);
        check(own != same, "one profile for two settings");
        check(LeaseProfile.of(conf(dynamic, "true")) == LeaseProfile.of(conf(dynamic, "true")), "two equal profiles");
    }

    private static void openRpcIsRefused() {
        String[][] settings = {{}, {"spark.authenticate", "false"}, {"spark.paceline.insecure", "false"}};
        for (String[] open : settings) {
            SparkConf conf = conf(open);
            try {
                Fit.checkSecurity(conf);
            } catch (PacelineException refused) {
                check(refused.getMessage().contains("spark.authenticate is not true"), refused.getMessage());
                continue;
            }
            throw new AssertionError("accepted: " + List.of(open));
        }
        for (String name : List.of("spark.authenticate", "spark.paceline.insecure", "paceline.insecure")) {
            Fit.checkSecurity(conf(name, "true"));
        }
    }

    private static SparkConf conf(String... setting) {
        SparkConf conf = new SparkConf(false);
        for (int i = 0; i < setting.length; i += 2) {
            conf.set(setting[i], setting[i + 1]);
        }
        return conf;
    }

    private static void statusDecidesOutcome() {
        expect(Lease.outcome(0, false), Lease.Outcome.OVER, "the run is over");
        expect(Lease.outcome(0, true), Lease.Outcome.LEFT, "the worker was to leave");
        expect(Lease.outcome(Native.ERR_PEER, false), Lease.Outcome.FAILED, "the driver is lost");
        expect(Lease.outcome(Native.ERR_PEER, true), Lease.Outcome.FAILED, "the driver is lost");
        expect(Lease.outcome(Native.ERR_BUG, false), Lease.Outcome.BROKEN, "a check of the library's own");
        expect(Lease.outcome(Native.ERR_BUG, true), Lease.Outcome.BROKEN, "such a check while it leaves");
    }

    private static final RecordSchema PAIRS = new RecordSchema(RecordSchema.Source.BINARY, new int[] {1, 1, 2}, 2);

    private static PackedRows pairs(int count) {
        PackedRows rows = new PackedRows(PAIRS);
        RowPacker packer = new RowPacker(PAIRS);
        for (int i = 0; i < count; i++) {
            check(rows.add(packer, RowFactory.create(new byte[] {(byte) i, 5}, i % 2), 0, 1) == null, "a row");
        }
        return rows;
    }

    private static ExecutorStore keepingStore(KeptRows keeper) {
        return ExecutorStore.open("fit", PAIRS, LocalEngine::new, RowsLimit.NONE, keeper);
    }

    /** Its rows are in a file that another executor takes over when its process is gone, and no other file. */
    private static void rowsOutliveTheirExecutor() throws Exception {
        Path folder = Files.createTempDirectory("paceline-lease-");
        Path left = folder.resolve("left");
        try {
            KeptRows keeper = new KeptRows(List.of(folder), "app", "1");
            ExecutorStore store = keepingStore(keeper);
            check(store.append(0, 4, pairs(3)) && store.append(2, 4, pairs(5)), "the store takes rows");
            KeptRows.Kept file = only(keeper);
            check(file.fit.equals("fit") && file.executor.equals("1"), "the file's name: " + file.path);
            expect(PosixFilePermissions.toString(Files.getPosixFilePermissions(file.path)), "rw-------", "its mode");
            check(new KeptRows(List.of(folder), "other", "2").list().isEmpty(), "another application finds it");
            check(store.restore() && store.append(3, 4, pairs(2)) && store.restore(), "another engine gets the rows");
            expect(keeper.list().size(), 3, "files");
            for (KeptRows.Kept each : keeper.list()) { // as if the process had been killed
                Files.copy(each.path, left.resolveSibling(each.path.getFileName() + ".left"));
            }
            ExecutorStore.release("fit");
            check(keeper.list().isEmpty(), "a store that is released leaves a file");
            adopts(folder, new KeptRows(List.of(folder), "app", "2"));
        } finally {
            try (Stream<Path> files = Files.list(folder)) {
                files.forEach(KeptRows::delete);
            }
            Files.delete(folder);
        }
    }

    private static KeptRows.Kept only(KeptRows keeper) {
        List<KeptRows.Kept> found = keeper.list();
        expect(found.size(), 1, "files");
        return found.get(0);
    }

    private static void adopts(Path folder, KeptRows keeper) throws IOException {
        try (Stream<Path> files = Files.list(folder)) {
            for (Path each : files.collect(Collectors.toList())) {
                Files.move(each, Path.of(each.toString().replace(".left", "")));
                Files.setPosixFilePermissions(Path.of(each.toString().replace(".left", "")),
                        PosixFilePermissions.fromString("rw-------"));
            }
        }
        RowsOffer offer = RowsOffer.of(new RowsOffer(PAIRS, 4, Map.of(0, 3L, 1, 9L, 2, 4L, 3, 2L), Set.of("2")).text());
        List<KeptRows.Kept> left = keeper.list();
        expect(left.size(), 3, "files that were left");
        Path link = folder.resolve("paceline-rows.app.fit.1.link");
        Files.createSymbolicLink(link, left.get(0).path);
        ExecutorStore store = keepingStore(keeper);
        try {
            List<KeptRows.Kept> all = keeper.list();
            expect(offer.take(store, all).stream().sorted().collect(Collectors.toList()), List.of(0, 3),
                    "partitions with the right number of records");
            check(!Files.exists(link, LinkOption.NOFOLLOW_LINKS), "a link that was refused stays");
            expect(offer.take(store, keeper.list()), List.of(), "partitions that are there already");
            check(store.append(1, 4, pairs(9)) && store.restore(), "rows that were adopted are restored");
        } catch (InterruptedException interrupted) {
            throw new AssertionError(interrupted);
        } finally {
            ExecutorStore.release("fit");
        }
    }

    /** A lease whose engine can only be closed releases the store: rows that are read again go to another engine. */
    private static void brokenStoreIsMadeAnew() {
        RecordSchema schema = new RecordSchema(RecordSchema.Source.BINARY, new int[] {1, 1, 2}, 2);
        PackedRows rows = new PackedRows(schema);
        check(rows.add(new RowPacker(schema), RowFactory.create(new byte[2], 1), 0, 1) == null, "a row");
        ExecutorStore first = ExecutorStore.open("session", schema, LocalEngine::new, RowsLimit.NONE,
                KeptRows.NONE);
        check(first.append(0, 4, rows), "the first store takes rows");
        check(first.beginTraining() != null && first.append(1, 4, rows), "a lease trains, and takes further rows");
        check(first.beginTraining() == null, "two leases have the same rows");
        first.endTraining();
        check(first.append(1, 4, rows), "a partition that is there is refused");
        ExecutorStore.release("session");
        check(ExecutorStore.find("session") == null, "the store is still known");
        ExecutorStore second = ExecutorStore.open("session", schema, LocalEngine::new, RowsLimit.NONE,
                KeptRows.NONE);
        check(second.append(0, 4, rows) && second.beginTraining() != null, "another store takes the rows");
        second.endTraining();
        ExecutorStore.release("session");
    }

    private static void limitIsTakenFromTheOverhead() {
        SparkConf conf = new SparkConf(false);
        expect(RowsLimit.bytes(conf) >> 20, 192L, "half of Spark's 384 MiB");
        conf.set("spark.executor.memory", "8g");
        expect(RowsLimit.bytes(conf) >> 20, 409L, "half of a tenth of the heap");
        conf.set("spark.executor.memoryOverheadFactor", "0.5");
        expect(RowsLimit.bytes(conf) >> 20, 2048L, "half of half of the heap");
        conf.set("spark.executor.memoryOverhead", "1000");
        expect(RowsLimit.bytes(conf) >> 20, 500L, "half of 1000 MiB");
        conf.set(RowsLimit.SETTING, "3g");
        expect(RowsLimit.bytes(conf) >> 20, 3072L, "the setting");
    }

    private static void otherVersionsAreRefused() {
        for (String spark : List.of("3.5.0", "3.5.6-vendor.1", "4.0.0", "4.1.2", "4.10.1-SNAPSHOT")) {
            SparkVersion.check(spark, "2.13.17");
        }
        SparkVersion.check();
        for (String spark : List.of("3.4.4", "3.50.0", "2.4.8", "5.0.0", "14.1.2", "35", "", "unknown")) {
            expectRefused(spark, "2.13.17");
        }
        for (String scala : List.of("2.12.18", "2.1.3", "3.3.1", "2.130.0", "")) {
            expectRefused("3.5.6", scala);
        }
    }

    private static void expectRefused(String spark, String scala) {
        try {
            SparkVersion.check(spark, scala);
        } catch (PacelineException refused) {
            for (String words : List.of("Spark " + spark + " with Scala " + scala, "needs Spark 3.5 or 4 with Scala 2.13")) {
                check(refused.getMessage().contains(words), "'" + words + "' in: " + refused.getMessage());
            }
            return;
        }
        throw new AssertionError("Spark " + spark + " with Scala " + scala + " was accepted");
    }
}
