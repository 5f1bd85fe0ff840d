package paceline.spark;

/** What the programs of tests share: cases by name, and checks. */
final class TestCases {
    interface Body {
        void run() throws Exception;
    }

    private TestCases() {}

    /** Announce a case as cmocka does, because scripts/skips.sh reads these lines. */
    static void run(String name, Body body) throws Exception {
        long from = System.nanoTime();
        System.out.println("[ RUN      ] " + name);
        body.run();
        System.out.printf("[       OK ] %s (%.1f s)%n", name, (System.nanoTime() - from) / 1e9);
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
