package paceline.spark;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;

/**
 * This process as a member of its application's team, which reduces shared variables. The driver coordinates the team.
 * An executor joins with the first task that uses a variable, and once more if the team has lost it. Where its library
 * is in a process, that is the member, and serves one call at a time.
 */
final class SharedTeam implements DriverEnd.Coordinator {
    /** The time that a task's thread waits before it looks whether Spark ends the task. */
    static final int SLICE_MS = 50;

    private static final int MEMBERS_MAX = 1024;
    private static final int JOIN_S = 50; // below the time for which a process may not answer
    private static final int POLL_MS = 5;
    private static final int PORTS = 5;
    private static final long CLOSE_MS = 5000;

    private static SharedTeam current; // null: no variable was used here
    private static FutureTask<SharedTeam> joining; // null: nobody joins

    private final String id;
    private final String address;
    private final String key;
    private final boolean coordinates;
    private final Engine engine;
    private final Map<String, Integer> numbers = new HashMap<>(); // of variables
    private long handle;
    private volatile boolean lost; // the team continues without this process

    private SharedTeam(String id, String address, String key, Engine engine, boolean coordinates) {
        this.id = id;
        this.address = address;
        this.key = key;
        this.engine = engine;
        this.coordinates = coordinates;
    }

    // ---- joining

    /** The team of the application whose driver this is. */
    static synchronized SharedTeam ofDriver(SparkContext context) {
        if (current == null) {
            current = coordinate(context);
            runInBackground("paceline-team-sweeper", current::sweep);
        }
        return current;
    }

    /** The team of that name, for a task or the driver. */
    static SharedTeam find(String id) {
        FutureTask<SharedTeam> task;
        synchronized (SharedTeam.class) {
            if (current != null && !current.id.equals(id)) {
                throw new PacelineException("the shared variable is of another application");
            }
            if (current != null && !current.lost) {
                return current;
            }
            if (current == null && isDriver()) {
                throw new PacelineException("the application of the shared variable is over");
            }
            if (joining == null) {
                joining = new FutureTask<>(() -> join(id));
                runInBackground("paceline-team", joining);
            }
            task = joining;
        }
        return await(task);
    }

    private static boolean isDriver() {
        SparkEnv env = SparkEnv.get();
        return env == null || env.executorId().equals("driver");
    }

    private static SharedTeam await(FutureTask<SharedTeam> task) {
        for (;;) {
            try {
                return task.get(SLICE_MS, TimeUnit.MILLISECONDS);
            } catch (TimeoutException waiting) {
                checkTask();
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                checkTask();
            } catch (ExecutionException failed) {
                throw new PacelineException("shared variables: " + failed.getCause().getMessage(), failed.getCause());
            }
        }
    }

    /** Spark interrupts a task that it ends, or marks it alone. */
    static void checkTask() {
        TaskContext context = TaskContext.get();
        if (Thread.currentThread().isInterrupted() || (context != null && context.isInterrupted())) {
            throw new PacelineException("interrupted while it waited for a shared variable");
        }
    }

    private static SharedTeam coordinate(SparkContext context) {
        DriverEnd plugin = DriverEnd.get();
        Fit.checkSecurity(context.getConf());
        String host = context.getConf().get("spark.driver.host");
        String id = "paceline-team-" + UUID.randomUUID();
        for (int i = 1;; i++) { // another process may take a port that was free
            SharedTeam team = new SharedTeam(id, host + ":" + findPort(host), Fit.newKey(), new LocalEngine(), true);
            Engine.Reply opened = team.open(host);
            if (opened.status >= 0) {
                plugin.register(id, team);
                return team;
            }
            if (opened.status != Native.ERR_INPUT || i == PORTS) {
                throw new PacelineException("the team of shared variables: " + opened.message);
            }
        }
    }

    private static int findPort(String host) {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getByName(host))) {
            return socket.getLocalPort();
        } catch (IOException failed) {
            throw new PacelineException("spark.driver.host " + host + ": " + failed.getMessage(), failed);
        }
    }

    private static SharedTeam join(String id) throws Exception {
        try {
            ExecutorEnd end = ExecutorEnd.get();
            String host = SparkEnv.get().blockManager().blockManagerId().host();
            String[] reply = end.ask(DriverEnd.JOIN, id, "", host).split("\n", -1);
            if (!reply[0].equals(DriverEnd.JOIN)) {
                throw new PacelineException("the application of the shared variable is over");
            }
            Engine engine = end.openEngine("-Xmx" + Runtime.getRuntime().maxMemory()); // vectors go through its heap
            SharedTeam team = new SharedTeam(id, reply[1], reply[2], engine, false);
            Engine.Reply opened = team.open(host);
            if (opened.status < 0) {
                throw new PacelineException("executor " + end.id() + " cannot join: " + opened.message);
            }
            SharedTeam before;
            synchronized (SharedTeam.class) {
                before = current;
                current = team;
            }
            if (before != null) {
                runInBackground("paceline-team-end", before::close); // it may take more than a minute
            }
            runInBackground("paceline-team-sweeper", team::sweep);
            return team;
        } finally {
            synchronized (SharedTeam.class) {
                joining = null;
            }
        }
    }

    /** Only processes that have the key are members, and values are encrypted on their way. */
    private Engine.Reply open(String host) {
        String rendezvous = address;
        List<String> options = new ArrayList<>(
                List.of("key=" + key, "listen=" + host + ":0", "timeout=" + JOIN_S));
        if (coordinates) {
            options.addAll(List.of("members=1", "members_max=" + MEMBERS_MAX));
        }
        String[] all = options.toArray(new String[0]);
        try {
            Engine.Reply opened = engine.call(own -> new Engine.Reply(Native.teamOpen(own, rendezvous, all)));
            handle = opened.status;
            return opened;
        } finally {
            if (handle <= 0) {
                engine.close();
            }
        }
    }

    // ---- the driver

    @Override
    public String join(String lease, String executor, String host) {
        return String.join("\n", DriverEnd.JOIN, address, key);
    }

    @Override
    public boolean admitsRows(String executor) {
        return false;
    }

    /** The application ends: so does the team, and with it each call that waits. */
    static synchronized void end(DriverEnd plugin) {
        if (current != null) {
            plugin.remove(current.id);
            current.close();
            current = null;
        }
    }

    /** The calls of other threads return within a slice. */
    private void close() {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(CLOSE_MS);
        try {
            while (call(own -> new Engine.Reply(Native.close(own))).status != 0 && System.nanoTime() < until) {
                Thread.sleep(1);
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            return;
        } catch (PacelineException gone) {
            // so has its process
        }
        engine.close();
    }

    // ---- calls

    String id() {
        return id;
    }

    boolean hasProcess() {
        return engine instanceof EngineProcess;
    }

    /** Call with the team's handle. */
    Engine.Reply call(Engine.Call call) {
        long team = handle;
        try {
            return engine.call(own -> call.run(team));
        } catch (PacelineException gone) {
            lost = true; // with its process
            throw gone;
        }
    }

    /** Wait so long, or less, for a round's result. A process does not wait: others call it meanwhile. */
    Engine.Reply await(int variable, long round, int millis) {
        int wait = hasProcess() ? 0 : millis;
        Engine.Reply reply = call(own -> new Engine.Reply(Native.sharedGet(own, variable, round, null, wait)));
        if (hasProcess() && reply.status == Native.ERR_TIMEOUT) {
            try {
                Thread.sleep(Math.min(POLL_MS, millis));
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }
        return reply;
    }

    /** The number by which the library knows the variable; it makes the variable where there is none. */
    synchronized int number(String key, int n, int tasks, int reduction) {
        String all = String.join("\n", key, n + " " + tasks + " " + reduction);
        Integer number = numbers.get(all);
        if (number == null) {
            number = (int) check(
                    call(own -> new Engine.Reply(Native.sharedOpen(own, key, n, tasks, reduction)))).status;
            numbers.put(all, number);
        }
        return number;
    }

    /** A reply that is no error, or its message. */
    Engine.Reply check(Engine.Reply reply) {
        if (reply.status == Native.ERR_PEER || reply.status == Native.ERR_BUG) {
            lost = !coordinates; // the next call joins again, in another process
        }
        if (reply.status < 0) {
            throw new PacelineException(reply.message);
        }
        return reply;
    }

    /** The first round that is not done here. */
    long round(int variable) {
        return call(own -> new Engine.Reply(Native.sharedRound(own, variable))).status;
    }

    private static void runInBackground(String name, Runnable body) {
        Thread thread = new Thread(body, name);
        thread.setDaemon(true);
        thread.start();
    }

    /**
     * Free the copies of vectors whose rounds are done, also of variables that no task uses any more, as long as this is
     * the process's team. Its process may not answer for a minute, for which nobody else waits.
     */
    private void sweep() {
        try {
            Thread.sleep(ExecutorEnd.SWEEP_MS);
            while (isCurrent()) {
                List<Integer> all;
                synchronized (this) {
                    all = List.copyOf(numbers.values());
                }
                all.forEach(this::round);
                Thread.sleep(ExecutorEnd.SWEEP_MS);
            }
        } catch (InterruptedException | PacelineException gone) {
            // the process has ended, and its copies with it
        }
    }

    private boolean isCurrent() {
        synchronized (SharedTeam.class) {
            return current == this && !lost;
        }
    }
}
