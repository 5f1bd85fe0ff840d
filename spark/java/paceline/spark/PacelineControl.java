package paceline.spark;

/** What a program may change while fits of its application run, from any thread of Spark's driver. */
public final class PacelineControl {
    private PacelineControl() {}

    /**
     * Fits are to have so many workers from now on, each within its minWorkers and maxWorkers; 0: as many as it may.
     * For more, leases are submitted, and under dynamic allocation Spark starts executors for them. For fewer, the
     * newest workers leave after an exchange, and their executors are free.
     */
    public static void setWorkers(int count) {
        if (count < 0) {
            throw new PacelineException("setWorkers " + count + ": it must be 0 or above");
        }
        DriverEnd.get().setWorkers(count);
    }

    /** Fits that now run end after their next exchange, each with the model that it has by then, not evaluated. */
    public static void stop() {
        DriverEnd.get().stopFits();
    }
}
