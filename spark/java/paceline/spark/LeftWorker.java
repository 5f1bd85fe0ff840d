package paceline.spark;

/**
 * A worker whose task Spark has ended, while it is still in the library: it computes a long step, or it is the run's
 * last one and waits for another in its place, or it hangs. A thread waits for its end and gives the engine back. Where
 * the driver says that it hangs, it is ended with the process that it has. Without one, the driver has Spark end the
 * executor.
 */
final class LeftWorker {
    private static final long ASK_MS = 500;

    private final String fit;
    private final Engine engine;
    private final Engine.Worker worker;
    private final Runnable giveBack;

    LeftWorker(String fit, Engine engine, Engine.Worker worker, Runnable giveBack) {
        this.fit = fit;
        this.engine = engine;
        this.worker = worker;
        this.giveBack = giveBack;
    }

    void start() {
        Thread thread = new Thread(this::await, "paceline-left");
        thread.setDaemon(true);
        thread.start();
    }

    /** A process is ended, too, when its fit is over. */
    private void await() {
        try {
            while (!worker.ended(ASK_MS)) {
                String number = Integer.toString(worker.number());
                if (!ask(DriverEnd.STUCK, fit, number).equals(DriverEnd.ALIVE) && worker.kill()) {
                    break;
                }
            }
        } catch (PacelineException gone) { // its process has ended
            worker.kill();
        }
        worker.close();
        ExecutorStore store = ExecutorStore.find(fit);
        if (store == null) {
            giveBack.run();
        } else if (!store.takeBack(giveBack, engine)) {
            ExecutorStore.release(fit);
            ask(DriverEnd.LOST, fit);
        }
    }

    /** A driver that does not answer is gone, or busy: the executor ends, or asks again. */
    private static String ask(String what, String... words) {
        try {
            return ExecutorEnd.get().ask(what, words);
        } catch (Exception failed) {
            return DriverEnd.ALIVE;
        }
    }
}
