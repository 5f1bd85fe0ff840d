package paceline.spark;

import java.util.Collections;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;

/**
 * The plugin in the driver: it knows which executors have loaded the library, and answers what
 * executors ask. A run's address and key travel in these replies alone. Messages are Strings in
 * both directions, because an executor cannot read a reply of a class from the application's jar.
 */
final class DriverEnd implements DriverPlugin {
    /** What a session, or a team, answers an executor. */
    interface Coordinator {
        /** The reply to an executor, which runs that lease if it names one: JOIN with an address, or another word. */
        String join(String lease, String executor, String host);

        /** Is that lease to end before the run does? `worker` is the number of its worker. */
        default boolean isToLeave(String lease, int worker) {
            return false;
        }

        /** A worker whose task has ended is still in the library. Is it to be ended by force? */
        default boolean isStuck(String executor, int worker) {
            return false;
        }

        /** That executor lives, and its rows are gone. */
        default void rowsLost(String executor) {}

        /** End soon, with a result. */
        default void stop() {}

        /** That executor is gone. */
        default void executorLost(String executor) {}

        /** May rows lie in that executor? Only so many have a worker. */
        boolean admitsRows(String executor);

        /** The rows of lost executors that one which has come may adopt, as RowsOffer has it; DECLINE: none. */
        default String offerRows(String executor, Set<String> living) {
            return DECLINE;
        }

        /** That executor has adopted these of them. */
        default void rowsTaken(String executor, String partitions) {}
    }

    static final String HELLO = "hello";
    static final String JOIN = "join";
    static final String WAIT = "wait";
    static final String PLACE = "place";
    static final String OFFER = "offer";
    static final String TAKEN = "taken";
    static final String ALIVE = "alive";
    static final String LEAVE = "leave";
    static final String STUCK = "stuck";
    static final String LOST = "lost";
    static final String OVER = "over";
    static final String DECLINE = "decline";

    private static volatile DriverEnd current;

    private final Map<String, Coordinator> sessions = new ConcurrentHashMap<>();
    private final Set<String> ready = ConcurrentHashMap.newKeySet();
    private final Map<String, String> hosts = new ConcurrentHashMap<>(); // of executors
    private final Map<String, String> failed = new ConcurrentHashMap<>();
    private final Map<String, Long> heardNs = new ConcurrentHashMap<>(); // when executors last called
    private SparkContext context;
    private volatile int workers; // that the user wants; 0: as a fit has it

    @Override
    public Map<String, String> init(SparkContext spark, PluginContext plugin) {
        context = spark;
        current = this;
        context.addSparkListener(new SparkListener() {
            @Override
            public void onExecutorAdded(SparkListenerExecutorAdded added) {
                hosts.put(added.executorId(), added.executorInfo().executorHost());
            }

            @Override
            public void onExecutorRemoved(SparkListenerExecutorRemoved removed) {
                hosts.remove(removed.executorId());
                ready.remove(removed.executorId());
                failed.remove(removed.executorId());
                heardNs.remove(removed.executorId());
                sessions.values().forEach(session -> session.executorLost(removed.executorId()));
            }
        });
        return Collections.emptyMap();
    }

    /** The plugin of this application; an error that says what is needed where there is none, or another Spark. */
    static DriverEnd get() {
        SparkVersion.check();
        DriverEnd end = current;
        if (end == null) {
            throw new PacelineException("the application has no Paceline plugin: set"
                    + " spark.plugins=paceline.spark.PacelinePlugin and spark.jars=paceline-spark.jar before"
                    + " the session is created");
        }
        return end;
    }

    /** Does its application still run? */
    boolean isCurrent() {
        return current == this;
    }

    /** A word, the executor that calls, and, except for HELLO, the session or the fit that it asks about. */
    @Override
    public Object receive(Object message) {
        String[] part = ((String) message).split("\n", -1);
        String executor = part[1];
        heardNs.put(executor, System.nanoTime());
        if (part[0].equals(HELLO)) {
            if (part[2].isEmpty()) {
                ready.add(executor);
            } else {
                failed.put(executor, part[2]);
            }
            return "";
        }
        Coordinator session = sessions.get(part[2]);
        return session == null ? OVER : answer(session, executor, part);
    }

    private String answer(Coordinator session, String executor, String[] part) {
        switch (part[0]) {
            case JOIN:
                return session.join(part[3], executor, part[4]);
            case PLACE:
                return session.admitsRows(executor) ? PLACE : DECLINE;
            case OFFER:
                return session.offerRows(executor, hosts.keySet());
            case TAKEN:
                session.rowsTaken(executor, part[3]);
                return TAKEN;
            case STUCK:
                return session.isStuck(executor, Integer.parseInt(part[3])) ? STUCK : ALIVE;
            case LOST:
                session.rowsLost(executor);
                return LOST;
            default:
                return part.length > 3 && session.isToLeave(part[3], Integer.parseInt(part[4])) ? LEAVE : ALIVE;
        }
    }

    /** Has that executor called since then? Each that runs calls every two seconds. */
    boolean hasCalled(String executor, long sinceNs) {
        Long heard = heardNs.get(executor);
        return heard != null && heard - sinceNs >= 0;
    }

    void setWorkers(int count) {
        workers = count;
    }

    /** The number of workers of a fit that may have from `least` to `most`: the user's, or else `otherwise`. */
    int workers(int least, int most, int otherwise) {
        int wanted = workers == 0 ? otherwise : workers;
        return Math.min(Math.max(wanted, least), most);
    }

    void stopFits() {
        sessions.values().forEach(Coordinator::stop);
    }

    void register(String session, Coordinator coordinator) {
        sessions.put(session, coordinator);
    }

    void remove(String session) {
        sessions.remove(session);
    }

    /** Spark has no event for a decommission, so its scheduler is asked; the call is public in Spark's jars. */
    boolean isDecommissioned(String executor) {
        return context.taskScheduler().getExecutorDecommissionState(executor).isDefined();
    }

    /** Also one that has not loaded the library. */
    boolean hasExecutor() {
        return !hosts.isEmpty();
    }

    boolean isReady(String executor) {
        return ready.contains(executor);
    }

    /** An executor as Spark names the place that a task prefers; null: it is lost, or none is named. */
    String location(String executor) {
        String host = hosts.get(executor);
        return host == null ? null : "executor_" + host + "_" + executor;
    }

    /** The executors that have loaded the library, without those that are to go. */
    Set<String> readyExecutors() {
        return ready.stream().filter(executor -> !isDecommissioned(executor)).collect(Collectors.toSet());
    }

    int ready() {
        return readyExecutors().size();
    }

    /** Why one of the executors could not load the library; null: each could. */
    String failure() {
        return failed.isEmpty() ? null : failed.values().iterator().next();
    }

    @Override
    public void shutdown() {
        SharedTeam.end(this);
        if (current == this) {
            current = null;
        }
    }
}
