package paceline.spark;

import java.util.Map;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;

/** The plugin in an executor: it loads the library, reports to the driver, and frees what is old. */
final class ExecutorEnd implements ExecutorPlugin {
    private static final long SWEEP_MS = 2000;

    private static volatile ExecutorEnd current;

    private PluginContext plugin;
    private volatile Throwable failure;
    private volatile boolean ended;

    /** An exception from here would end the executor, and each of its replacements. */
    @Override
    public void init(PluginContext context, Map<String, String> extra) {
        plugin = context;
        current = this;
        try {
            NativeLibrary.load();
        } catch (Throwable thrown) {
            failure = thrown;
        }
        try {
            ask(DriverEnd.HELLO, context.executorID(),
                    failure == null ? "" : String.valueOf(failure).replace('\n', ' '));
            Thread sweeper = new Thread(this::sweep, "paceline-sweeper");
            sweeper.setDaemon(true);
            sweeper.start();
        } catch (Throwable thrown) {
            failure = thrown;
        }
    }

    /** The plugin of this executor, with the library loaded, or an error that says why not. */
    static ExecutorEnd get() {
        ExecutorEnd end = current;
        if (end == null) {
            throw new PacelineException(
                    "this executor has no Paceline plugin: set spark.plugins=paceline.spark.PacelinePlugin");
        }
        if (end.failure != null) {
            throw new PacelineException("executor " + end.id() + " cannot load the library: "
                    + end.failure.getMessage(), end.failure);
        }
        return end;
    }

    /** For records and a worker, where the application wants them. */
    Engine openEngine() {
        return plugin.conf().getBoolean("spark.paceline.process", false) ? new EngineProcess() : new LocalEngine();
    }

    /** The store of a fit's rows. Those of fits that are over go first, and leave their memory to it. */
    ExecutorStore openStore(String session, RecordSchema schema) throws Exception {
        ExecutorStore found = ExecutorStore.find(session);
        if (found != null) {
            return found;
        }
        freeOver();
        return ExecutorStore.open(session, schema, this::openEngine, RowsLimit.ofExecutor(plugin.conf()));
    }

    private void freeOver() throws Exception {
        for (String session : ExecutorStore.sessions()) {
            if (ask(DriverEnd.ALIVE, session).equals(DriverEnd.OVER)) {
                ExecutorStore.release(session);
            }
        }
    }

    String id() {
        return plugin.executorID();
    }

    /** Ask the driver; the reply is a String, because no other class of ours could be read here. */
    String ask(String... words) throws Exception {
        return (String) plugin.ask(String.join("\n", words));
    }

    /** Free vectors of rounds and stores of sessions that are over; a driver cannot call its executors. */
    private void sweep() {
        while (!ended) {
            try {
                Thread.sleep(SWEEP_MS);
                SharedTeam.freeDone();
                freeOver();
            } catch (Exception ignored) {
                // The driver does not answer: Spark ends this executor when it is gone.
            }
        }
    }

    @Override
    public void shutdown() {
        ended = true;
    }
}
