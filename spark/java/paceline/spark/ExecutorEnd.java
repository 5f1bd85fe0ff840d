package paceline.spark;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The plugin in an executor: it loads the library, reports to the driver, and frees what is old. */
final class ExecutorEnd implements ExecutorPlugin {
    private static final Logger LOG = LoggerFactory.getLogger(ExecutorEnd.class);
    private static final String NOT_ADOPTED = "rows of lost executors are not adopted: {}";
    static final long SWEEP_MS = 2000;
    private static final String NO_FIT = "";

    private static volatile ExecutorEnd current;

    private PluginContext plugin;
    private volatile KeptRows keeper = KeptRows.NONE;
    private final Map<String, RowsOffer> offers = new HashMap<>(); // by fit, of rows that are to be adopted
    private volatile Throwable failure;
    private volatile boolean ended;

    /** An exception from here would end the executor, and each of its replacements. */
    @Override
    public void init(PluginContext context, Map<String, String> extra) {
        plugin = context;
        current = this;
        try {
            NativeLibrary.load(localFolder());
            keeper = KeptRows.ofExecutor(plugin.conf(), plugin.executorID());
        } catch (Throwable thrown) {
            failure = thrown;
        }
        try {
            findOffers();
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                ExecutorStore.deleteFiles();
                HostedShards.deleteFiles();
            }, "paceline-files"));
            Thread sweeper = new Thread(this::serve, "paceline-sweeper");
            sweeper.setDaemon(true);
            sweeper.start();
        } catch (Throwable thrown) {
            failure = thrown;
        }
    }

    /** Spark deletes it with the executor. */
    private static Path localFolder() {
        return SparkEnv.get().blockManager().diskBlockManager().localDirs()[0].toPath();
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

    /** Where the application wants the library; options of Java for its process. */
    Engine openEngine(String... javaOptions) {
        return plugin.conf().getBoolean("spark.paceline.process", false) ? new EngineProcess(localFolder(), javaOptions)
                : new LocalEngine();
    }

    /** The store of a fit's rows. Those of fits that are over go first, and leave their memory to it. */
    ExecutorStore openStore(String session, RecordSchema schema) throws Exception {
        ExecutorStore found = ExecutorStore.find(session);
        if (found != null) {
            return found;
        }
        freeOver();
        return ExecutorStore.open(session, schema, this::openEngine, RowsLimit.ofExecutor(plugin.conf()),
                keeper);
    }

    private void freeOver() throws Exception {
        List<String> own = ExecutorStore.sessions();
        for (String session : own) {
            if (isOver(session)) {
                ExecutorStore.release(session);
            }
        }
        for (String fit : HostedShards.fits()) {
            if (isOver(fit)) {
                HostedShards.release(fit);
            }
        }
        for (KeptRows.Kept file : keeper.list()) { // of executors that were killed
            if (!own.contains(file.fit) && isOver(file.fit)) {
                KeptRows.delete(file.path);
            }
        }
    }

    private boolean isOver(String session) throws Exception {
        return ask(DriverEnd.ALIVE, session).equals(DriverEnd.OVER);
    }

    /**
     * Ask for fits that lack rows which an executor that is lost has left here. Spark starts no task here before that,
     * so none reads them.
     */
    private void findOffers() {
        try {
            for (String fit : keeper.list().stream().map(file -> file.fit).collect(Collectors.toSet())) {
                RowsOffer offer = RowsOffer.of(ask(DriverEnd.OFFER, fit));
                if (offer != null) {
                    offers.put(fit, offer);
                }
            }
        } catch (Exception failed) {
            LOG.warn(NOT_ADOPTED, failed.toString());
        }
    }

    /** These rows are this executor's from now on. */
    private void adoptRows(String fit, RowsOffer offer) throws Exception {
        List<Integer> adopted = List.of();
        String reply;
        try {
            adopted = offer.take(openStore(fit, offer.schema), keeper.list().stream()
                    .filter(file -> file.fit.equals(fit)).collect(Collectors.toList()));
        } finally {
            reply = ask(DriverEnd.TAKEN, fit, RowsOffer.join(adopted));
        }
        if (reply.equals(DriverEnd.OVER)) {
            ExecutorStore.release(fit);
        }
    }

    String id() {
        return plugin.executorID();
    }

    /** Ask the driver; the reply is a String, because no other class of ours could be read here. */
    String ask(String what, String... words) throws Exception {
        return (String) plugin.ask(what + "\n" + id() + "\n" + String.join("\n", words));
    }

    /** Report to the driver, at first that this executor is ready, with the rows that it has found here. */
    private void serve() {
        for (Map.Entry<String, RowsOffer> offer : offers.entrySet()) {
            try {
                adoptRows(offer.getKey(), offer.getValue());
            } catch (Exception failed) {
                LOG.warn(NOT_ADOPTED, failed.toString());
            }
        }
        try {
            ask(DriverEnd.HELLO, failure == null ? "" : String.valueOf(failure).replace('\n', ' '));
        } catch (Exception thrown) {
            failure = thrown;
        }
        sweep();
    }

    /**
     * Free stores of sessions that are over; a driver cannot call its executors. It takes one that
     * does not call for one that stands still.
     */
    private void sweep() {
        while (!ended) {
            try {
                Thread.sleep(SWEEP_MS);
                ask(DriverEnd.ALIVE, NO_FIT);
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
