package paceline.spark;

import static paceline.spark.NativeTest.direct;
import static paceline.spark.NativeTest.done;
import static paceline.spark.NativeTest.entries;
import static paceline.spark.NativeTest.expectIn;
import static paceline.spark.NativeTest.opened;
import static paceline.spark.NativeTest.residentKilobytes;
import static paceline.spark.TestCases.check;
import static paceline.spark.TestCases.run;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.FloatBuffer;
import java.util.Arrays;
import java.util.concurrent.FutureTask;

/** The native functions of teams and shared variables: three members, an engine each, in this process. */
final class NativeSharedTest {
    private static final String KEY = "0123456789abcdef0123456789abcdef";
    private static final int MEMBERS = 3;
    private static final int TASKS = 6;
    private static final int ROUNDS = 20;
    private static final int FLOATS = 5000;
    private static final int LARGE = 250_000; // floats: 6 tasks of 60 rounds are 360 MB
    private static final int LARGE_ROUNDS = 60;
    private static final int AHEAD = 8;
    private static final int WAIT_MS = 30_000;

    private NativeSharedTest() {}

    public static void main(String[] arguments) throws Exception {
        NativeLibrary.load();
        run("test_tasks_of_members_are_reduced", NativeSharedTest::tasksOfMembersAreReduced);
        run("test_copies_are_freed", NativeSharedTest::copiesAreFreed);
        run("test_errors_have_names", NativeSharedTest::errorsHaveNames);
        run("test_waits_end", NativeSharedTest::waitsEnd);
        run("test_lost_vectors_are_submitted_again", NativeSharedTest::lostVectorsAreSubmittedAgain);
        run("test_end_of_coordinator_ends_waits", NativeSharedTest::endOfCoordinatorEndsWaits);
        run("test_teams_leak_nothing", NativeSharedTest::teamsLeakNothing);
        openTeam(2)[1].open("left", FLOATS, TASKS, Native.SUM); // main ends while a team is open
    }

    // ---- a team

    private static final class Member {
        final long engine = opened(Native.engineCreate(Native.LOG_WARN));
        final long team;

        Member(String address, String... options) {
            team = opened(Native.teamOpen(engine, address, options));
        }

        int open(String key, int n, int tasks, int reduction) {
            int number = Native.sharedOpen(team, key, n, tasks, reduction);
            check(number >= 0, "status " + number + ": " + Native.message());
            return number;
        }

        void submit(int variable, long round, int task, float[] x) {
            done(Native.sharedSubmit(team, variable, round, task, x, null));
        }

        float[] get(int variable, long round, int n) {
            float[] out = new float[n];
            done(Native.sharedGet(team, variable, round, out, WAIT_MS));
            return out;
        }

        void close() {
            done(Native.close(team));
            done(Native.close(engine));
        }
    }

    private static String freeAddress() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))) {
            return "127.0.0.1:" + socket.getLocalPort();
        }
    }

    /** The first one coordinates. */
    private static Member[] openTeam(int members) throws IOException {
        String address = freeAddress();
        Member[] all = new Member[members];
        all[0] = new Member(address, "members=1", "members_max=" + MEMBERS, "key=" + KEY);
        for (int i = 1; i < members; i++) {
            all[i] = new Member(address, "key=" + KEY, "listen=127.0.0.1:0", "timeout=60");
        }
        return all;
    }

    private static void closeTeam(Member[] team) {
        for (int i = team.length - 1; i >= 0; i--) {
            team[i].close();
        }
    }

    private static int openEverywhere(Member[] team, String key, int n, int reduction) {
        int number = team[0].open(key, n, TASKS, reduction);
        for (int i = 1; i < team.length; i++) {
            check(team[i].open(key, n, TASKS, reduction) == number, "a member has another number");
        }
        return number;
    }

    // ---- reductions

    private static float[] vector(long round, int task, int n) {
        float[] x = new float[n];
        for (int i = 0; i < n; i++) {
            x[i] = (round * 5 + task * 101 + i) % 499; // whole numbers: sums are exact in any order
        }
        return x;
    }

    private static float[] sum(long round, int n) {
        float[] all = new float[n];
        for (int task = 0; task < TASKS; task++) {
            float[] x = vector(round, task, n);
            for (int i = 0; i < n; i++) {
                all[i] += x[i];
            }
        }
        return all;
    }

    /** Tasks 0 and 1 run on two members; task 2 gives its member another vector the second time. */
    private static void tasksOfMembersAreReduced() throws Exception {
        Member[] team = openTeam(MEMBERS);
        int sums = openEverywhere(team, "sum", FLOATS, Native.SUM);
        int means = openEverywhere(team, "mean", FLOATS, Native.MEAN);
        check(sums != means && openEverywhere(team, "sum", FLOATS, Native.SUM) == sums, "numbers of variables");
        FloatBuffer buffer = direct(FLOATS * Float.BYTES).asFloatBuffer();
        for (int round = 0; round < ROUNDS; round++) {
            for (int task = 0; task < TASKS; task++) {
                Member member = team[(task + round) % MEMBERS];
                float[] x = vector(round, task, FLOATS);
                member.submit(sums, round, task, x);
                buffer.put(0, x);
                done(Native.sharedSubmit(member.team, means, round, task, null, buffer));
                if (task == 2) {
                    Arrays.fill(x, 1e6f);
                    member.submit(sums, round, task, x);
                } else if (task < 2) {
                    team[(task + round + 1) % MEMBERS].submit(sums, round, task, x);
                }
                Arrays.fill(x, Float.NaN);
                buffer.put(0, x);
            }
            float[] expected = sum(round, FLOATS);
            for (Member member : team) {
                check(Arrays.equals(member.get(sums, round, FLOATS), expected), "the sum of round " + round);
            }
            for (int i = 0; i < FLOATS; i++) {
                expected[i] /= TASKS;
            }
            check(Arrays.equals(team[2].get(means, round, FLOATS), expected), "the mean of round " + round);
        }
        for (Member member : team) {
            check(Native.sharedRound(member.team, sums) == ROUNDS, "rounds that are done");
        }
        closeTeam(team);
    }

    private static void copiesAreFreed() throws Exception {
        Member[] team = openTeam(2);
        int variable = openEverywhere(team, "large", LARGE, Native.MAX);
        float[] x = vector(0, 0, LARGE);
        long before = 0;
        for (int round = 0; round < LARGE_ROUNDS; round++) {
            for (int task = 0; task < TASKS; task++) {
                team[task % 2].submit(variable, round, task, x);
                team[task % 2].submit(variable, round, task, x);
            }
            for (Member member : team) {
                done(Native.sharedGet(member.team, variable, round, null, WAIT_MS));
            }
            before = round == LARGE_ROUNDS / 6 ? residentKilobytes() : before;
        }
        long more = residentKilobytes() - before;
        System.out.println(LARGE_ROUNDS + " rounds: " + more + " KiB more");
        check(more < 64 << 10, more + " KiB more");
        closeTeam(team);
    }

    // ---- errors

    private static void refused(int expected, long status, String words) {
        check(status == expected, "status " + status + ", not " + expected);
        expectIn(Native.message(), words);
    }

    private static void errorsHaveNames() throws Exception {
        long engine = opened(Native.engineCreate(Native.LOG_WARN));
        refused(Native.ERR_USAGE, Native.teamOpen(engine, null, new String[] {"members=1"}), "rendezvous");
        refused(Native.ERR_INPUT, Native.teamOpen(engine, "nonsense", new String[] {"members=1"}), "nonsense");
        refused(Native.ERR_USAGE, Native.teamOpen(engine, "x", new String[] {"colour=red"}), "no option colour");
        String address = freeAddress();
        refused(Native.ERR_INPUT, Native.teamOpen(engine, address, new String[] {"members=1", "key=short"}), "key");
        Member[] team = {new Member(address, "members=1", "members_max=2", "key=" + KEY)};
        refused(Native.ERR_INPUT, Native.teamOpen(engine, address, null), "key");
        refused(Native.ERR_USAGE, Native.close(team[0].engine), "a team");
        long handle = team[0].team;
        refused(Native.ERR_USAGE, Native.sharedOpen(handle, null, FLOATS, TASKS, Native.SUM), "key");
        refused(Native.ERR_USAGE, Native.sharedOpen(handle, "k".repeat(64), FLOATS, TASKS, Native.SUM), "63");
        refused(Native.ERR_USAGE, Native.sharedOpen(handle, "w", 0, TASKS, Native.SUM), "'w'");
        refused(Native.ERR_USAGE, Native.sharedOpen(handle, "w", -1, TASKS, Native.SUM), "-1 floats");
        refused(Native.ERR_USAGE, Native.sharedOpen(handle, "w", FLOATS, TASKS, 4), "reduction 4");
        int variable = team[0].open("w", FLOATS, TASKS, Native.MIN);
        refused(Native.ERR_USAGE, Native.sharedOpen(handle, "w", 7, TASKS, Native.MIN), "n is 5000 elsewhere, and 7");
        refused(Native.ERR_USAGE, Native.sharedOpen(handle, "w", FLOATS, TASKS, Native.MAX), "'w'");
        float[] x = new float[FLOATS];
        refused(Native.ERR_USAGE, Native.sharedSubmit(handle, variable, 0, 0, new float[3], null), "3 floats of 5000");
        refused(Native.ERR_USAGE, Native.sharedSubmit(handle, variable, 0, 0, null, null), "no array");
        refused(Native.ERR_USAGE, Native.sharedSubmit(handle, variable, 0, 0, null, FloatBuffer.wrap(x)), "no array");
        refused(Native.ERR_USAGE, Native.sharedSubmit(handle, variable, 0, TASKS, x, null), "task 6, but it has 6");
        refused(Native.ERR_USAGE, Native.sharedSubmit(handle, variable, 0, -1, x, null), "task -1");
        refused(Native.ERR_USAGE, Native.sharedSubmit(handle, variable, AHEAD, 0, x, null), "round 8 is too far ahead");
        refused(Native.ERR_USAGE, Native.sharedSubmit(handle, variable, -1, 0, x, null), "too far ahead");
        refused(Native.ERR_USAGE, Native.sharedGet(handle, variable, 0, new float[3], 0), "3 floats of 5000");
        refused(Native.ERR_TIMEOUT, Native.sharedGet(handle, variable, 0, x, 0), "'w', round 0: it has no result yet");
        refused(Native.ERR_USAGE, Native.sharedRound(handle, variable + 1), "no shared variable 1");
        for (int round = 0; round < 4; round++) {
            for (int task = 0; task < TASKS; task++) {
                team[0].submit(variable, round, task, x);
            }
            team[0].get(variable, round, FLOATS);
        }
        refused(Native.ERR_NOT_FOUND, Native.sharedGet(handle, variable, 0, x, 0), "no longer kept");
        team[0].submit(variable, 0, 0, x); // of a round that is done: it is ignored
        for (long wrong : new long[] {0, -1, team[0].engine, Long.MAX_VALUE}) {
            refused(Native.ERR_USAGE, Native.sharedOpen(wrong, "w", FLOATS, TASKS, Native.SUM), "team: it is closed");
            refused(Native.ERR_USAGE, Native.sharedSubmit(wrong, 0, 0, 0, x, null), "team: it is closed");
            refused(Native.ERR_USAGE, Native.sharedGet(wrong, 0, 0, x, 0), "team: it is closed");
            refused(Native.ERR_USAGE, Native.sharedRound(wrong, 0), "team: it is closed");
        }
        closeTeam(team);
        refused(Native.ERR_USAGE, Native.sharedGet(handle, variable, 0, x, 0), "team: it is closed");
        done(Native.close(engine));
    }

    // ---- ends

    private static FutureTask<Integer> getInBackground(Member member, int variable, int millis) {
        FutureTask<Integer> task = new FutureTask<>(() -> Native.sharedGet(member.team, variable, 0, null, millis));
        new Thread(task).start();
        return task;
    }

    private static void waitsEnd() throws Exception {
        Member[] team = openTeam(1);
        int variable = team[0].open("wait", FLOATS, TASKS, Native.SUM);
        long from = System.nanoTime();
        refused(Native.ERR_TIMEOUT, Native.sharedGet(team[0].team, variable, 0, null, 50), "no result yet");
        long took = (System.nanoTime() - from) / 1_000_000;
        check(took >= 50 && took < 1000, "a wait of 50 ms took " + took);
        FutureTask<Integer> waiting = getInBackground(team[0], variable, 1500);
        Thread.sleep(300);
        refused(Native.ERR_USAGE, Native.close(team[0].team), "it is in use");
        check(waiting.get() == Native.ERR_TIMEOUT, "the wait ended early");
        team[0].submit(variable, 0, 0, new float[FLOATS]); // borrowed when the team is closed
        closeTeam(team);
    }

    private static void lostVectorsAreSubmittedAgain() throws Exception {
        Member[] team = openTeam(MEMBERS);
        int variable = openEverywhere(team, "lost", FLOATS, Native.SUM);
        for (int task = 0; task < TASKS - 1; task++) {
            team[task % MEMBERS].submit(variable, 0, task, vector(0, task, FLOATS));
        }
        team[2].close(); // with the vector of task 2; nobody has that of task 5
        team[1].submit(variable, 0, 5, vector(0, 5, FLOATS));
        refused(Native.ERR_TIMEOUT, Native.sharedGet(team[1].team, variable, 0, null, 300), "no result yet");
        team[0].submit(variable, 0, 2, vector(0, 2, FLOATS));
        for (int i = 0; i < 2; i++) {
            check(Arrays.equals(team[i].get(variable, 0, FLOATS), sum(0, FLOATS)), "the sum");
        }
        closeTeam(Arrays.copyOf(team, 2));
    }

    private static void endOfCoordinatorEndsWaits() throws Exception {
        Member[] team = openTeam(2);
        int variable = openEverywhere(team, "over", FLOATS, Native.SUM);
        FutureTask<Integer> waiting = getInBackground(team[1], variable, WAIT_MS);
        Thread.sleep(100);
        long from = System.nanoTime();
        team[0].close();
        check(waiting.get() == Native.ERR_PEER, "the wait ended with " + waiting.get());
        check(System.nanoTime() - from < 5_000_000_000L, "the wait ended late");
        refused(Native.ERR_PEER, Native.sharedSubmit(team[1].team, variable, 0, 0, new float[FLOATS], null),
                "the team is over");
        team[1].close();
    }

    /** Each team has a vector that no round has taken. */
    private static void teamsLeakNothing() throws Exception {
        float[] x = new float[LARGE];
        int threads = 0, files = 0;
        long resident = 0;
        for (int i = 0; i < 30; i++) {
            Member[] team = openTeam(2);
            int variable = openEverywhere(team, "cycle", LARGE, Native.SUM);
            team[1].submit(variable, 0, 1, x);
            closeTeam(team);
            if (i == 9) {
                threads = entries("task");
                files = entries("fd");
                resident = residentKilobytes();
            }
        }
        check(entries("task") < threads + 6, "threads: " + threads + ", then " + entries("task"));
        check(entries("fd") < files + 6, "descriptors: " + files + ", then " + entries("fd"));
        long more = residentKilobytes() - resident;
        System.out.println("20 teams: " + more + " KiB more");
        check(more < 12 << 10, more + " KiB more");
    }
}
