package paceline.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.ListIterator;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.spark.api.java.JavaFutureAction;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.resource.ResourceProfile;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;

/**
 * Keeps as many leases as a session's fit is to have workers: a one-task job each, submitted again
 * with a growing pause when it ends before the run does. A lease that is surplus, or whose executor
 * Spark decommissions, is asked to leave; in the place of the latter another lease is submitted at
 * once. Leases stay for the session's next fit. The thread that fits uses it; RPC threads call join,
 * isToLeave and executors.
 */
final class LeaseManager {
    private enum State {
        WAITING, // for its time
        SUBMITTED, // a job of Spark's, pending or running
        LEAVING // such a job that is to end; it does not count towards the target
    }

    private static final class Slot {
        final String lease; // its name, and that of its job group
        RestartPolicy.Record record = new RestartPolicy.Record();
        State state = State.WAITING;
        long dueMs;
        String place = ""; // the executor in which it is to run; empty: any
        String executor = ""; // where it runs; empty: it does not run yet
        String host = "";
        int worker = Engine.Worker.NO_NUMBER; // as it last said
        boolean trains; // as far as it has said
        boolean told; // that it is to leave
        JavaFutureAction<List<Lease.Result>> job;

        Slot(String lease) {
            this.lease = lease;
        }

        /** In the place of one that is cancelled, whose task may still run, and is not to be taken for this one's. */
        Slot successor(String name) {
            Slot next = new Slot(name);
            next.record = record;
            next.dueMs = dueMs;
            return next;
        }

        boolean isOpen() {
            return state != State.WAITING && !job.isDone();
        }

        /** It has asked for work, and there was none. */
        boolean isIdle() {
            return state == State.SUBMITTED && !executor.isEmpty() && !trains;
        }
    }

    /** A worker that its run has dropped, and that lives, joins again within this time, unless it is stuck. */
    private static final String REJOIN = "spark.paceline.rejoinWait";
    private static final String REJOIN_DEFAULT = "20s";
    private static final long REJOIN_MIN_MS = 2 * ExecutorEnd.SWEEP_MS; // an executor that runs calls meanwhile

    private final JavaSparkContext context;
    private final String session;
    private final List<Slot> slots = new ArrayList<>(); // the newest last
    private final Map<String, String> useless = new HashMap<>(); // executors that Spark is to replace, and why
    private final Set<String> hanging = new HashSet<>(); // executors in which a worker hangs
    private final RestartPolicy policy = new RestartPolicy();
    private final Predicate<String> decommissioned;
    private final Consumer<String> log;
    private Consumer<String> rowsLost;
    private BooleanSupplier open; // leases may be submitted
    private Supplier<Set<String>> places; // executors in which leases are to be, as far as it matters
    private long rejoinMs;
    private int target;
    private int members; // of the run, as it last said
    private int named;
    private int submitted; // for this fit
    private int raised; // leases that its target has asked for, in all
    private String lastFailure = "";
    private boolean needsRows;

    LeaseManager(JavaSparkContext context, String session, Predicate<String> decommissioned, Consumer<String> log) {
        this.context = context;
        this.session = session;
        this.decommissioned = decommissioned;
        this.log = log;
    }

    /**
     * A fit begins that wants so many workers, one in each of the executors `where` or, if there are none, anywhere;
     * open leases of earlier fits take part. None is submitted while `mayBegin` is false. `lost` gets each executor
     * whose rows no worker can train on any more.
     */
    synchronized void begin(int count, Supplier<Set<String>> where, BooleanSupplier mayBegin, Consumer<String> lost) {
        open = mayBegin;
        places = where;
        rowsLost = lost;
        slots.removeIf(slot -> !slot.isOpen());
        needsRows = false;
        submitted = 0;
        members = 0;
        rejoinMs = Math.max(context.getConf().getTimeAsMs(REJOIN, REJOIN_DEFAULT), REJOIN_MIN_MS);
        policy.beginRun();
        workerJoined();
        target = count(slot -> slot.state != State.LEAVING);
        raised = 0;
        setTarget(count);
    }

    private int count(Predicate<Slot> kind) {
        return (int) slots.stream().filter(kind).count();
    }

    /** So many leases are to run or to be pending, from the next tick on. */
    synchronized void setTarget(int count) {
        raised += Math.max(0, count - target);
        target = count;
    }

    /** The run has so many members. */
    synchronized void setMembers(int count) {
        members = count;
    }

    /** Look after leases that have ended, and submit and end others until there are as many as wanted. */
    synchronized void tick() {
        long now = now();
        for (Iterator<Slot> each = slots.iterator(); each.hasNext();) {
            Slot slot = each.next();
            if (slot.state != State.WAITING && slot.job.isDone()) {
                if (slot.state == State.LEAVING) {
                    each.remove();
                    members -= slot.told ? 1 : 0; // until the run says how many there are
                } else {
                    settle(slot, now);
                }
            }
        }
        leaveDecommissioned();
        cancelDropped(now);
        replaceUseless();
        release(count(slot -> slot.state != State.LEAVING && !slot.isIdle()) - target);
        for (int count = count(slot -> slot.state != State.LEAVING); count < target; count++) {
            slots.add(new Slot(nextName()));
        }
        for (Slot slot : slots) {
            if (slot.state == State.WAITING && now >= slot.dueMs && hasPlace()) {
                submit(slot);
            }
        }
        if (policy.exhausted() > 0) {
            throw new PacelineException(policy.exhausted() + " leases have failed one after another; the last one: "
                    + lastFailure);
        }
    }

    private String nextName() {
        return session + "-lease-" + named++;
    }

    private static long now() {
        return System.nanoTime() / 1_000_000;
    }

    private void submit(Slot slot) {
        slot.executor = "";
        slot.place = ""; // it does not stand in its own way
        slot.place = place();
        JobGroup group = new JobGroup(context, slot.lease, "Paceline worker");
        try {
            JavaRDD<Lease.Result> task = partition(DriverEnd.get().location(slot.place))
                    .mapPartitions(new Lease(session, slot.lease));
            ResourceProfile profile = LeaseProfile.of(context.getConf());
            slot.job = (profile == null ? task : task.withResources(profile)).collectAsync();
        } finally {
            group.leave();
        }
        slot.state = State.SUBMITTED;
        submitted++;
    }

    /** Where rows lie in executors, a lease elsewhere would only take the core that is to read lost ones. */
    private boolean hasPlace() {
        return open.getAsBoolean() && (places.get().isEmpty() || !place().isEmpty());
    }

    /** An executor that still lacks a lease; empty: any. */
    private String place() {
        Set<String> lacking = new HashSet<>(places.get());
        lacking.removeAll(executors());
        return lacking.stream().findFirst().orElse("");
    }

    /** One partition, whose task runs there if it can within spark.locality.wait; null: anywhere. */
    private JavaRDD<Integer> partition(String location) {
        if (location == null) {
            return context.parallelize(Collections.singletonList(0), 1);
        }
        ClassTag<Integer> type = ClassTag.apply(Integer.class);
        return JavaRDD.fromRDD(context.sc().makeRDD(seq(new Tuple2<>(0, seq(location))), type), type);
    }

    private static <T> Seq<T> seq(T only) {
        return CollectionConverters.asScala(List.of(only)).toSeq();
    }

    private void settle(Slot slot, long now) {
        Lease.Result result = resultOf(slot);
        slot.state = State.WAITING;
        slot.trains = false;
        switch (result.outcome) {
            case EMPTY:
                needsRows = true;
                slot.dueMs = policy.foundNothing(slot.record, now);
                break;
            case BROKEN:
                rowsLost.accept(result.executor);
                failed(slot, result, now);
                break;
            case FAILED:
                failed(slot, result, now);
                break;
            default:
                slot.dueMs = policy.ended(now);
                log.accept("a lease on executor " + result.executor + " ended: " + result.outcome);
                break;
        }
    }

    /** Spark would start the lost executor's lease on the next one that comes, before its rows are there. */
    synchronized void executorLost(String executor) {
        for (Slot slot : slots) {
            if (slot.state == State.SUBMITTED && slot.executor.equals(executor) && !slot.job.isDone()) {
                context.cancelJobGroup(slot.lease);
                slot.state = State.WAITING;
                slot.trains = false;
                slot.dueMs = now();
            }
        }
    }

    private static Lease.Result resultOf(Slot slot) {
        try {
            return slot.job.get().get(0);
        } catch (ExecutionException thrown) {
            return new Lease.Result(Lease.Outcome.FAILED, "", "", String.valueOf(thrown.getCause()));
        } catch (RuntimeException thrown) {
            return new Lease.Result(Lease.Outcome.FAILED, "", "", String.valueOf(thrown));
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new PacelineException("interrupted");
        }
    }

    private void failed(Slot slot, Lease.Result result, long now) {
        slot.dueMs = policy.failed(slot.record, result.host, now);
        lastFailure = result.message;
        log.accept("a lease on executor " + result.executor + " failed: " + result.message);
    }

    /** The run trains on without that worker, whose lease runs. */
    synchronized void workerDropped(int worker) {
        policy.workerDropped(worker, now());
    }

    private void cancelDropped(long now) {
        for (ListIterator<Slot> each = slots.listIterator(); each.hasNext();) {
            Slot slot = each.next();
            long since = policy.overdue(slot.worker, now, rejoinMs);
            boolean runs = slot.state != State.WAITING && slot.trains && DriverEnd.get().location(slot.executor) != null;
            if (runs && since != Long.MAX_VALUE) {
                cancel(slot, now, since);
                if (slot.state == State.SUBMITTED) {
                    each.set(slot.successor(nextName()));
                }
            }
        }
    }

    private void cancel(Slot slot, long now, long since) {
        context.cancelJobGroup(slot.lease);
        if (!DriverEnd.get().hasCalled(slot.executor, since * 1_000_000)) {
            useless.put(slot.executor, "it is silent"); // Spark would wait until spark.network.timeout
        }
        slot.trains = false;
        failed(slot, new Lease.Result(Lease.Outcome.FAILED, slot.executor, slot.host, "worker " + slot.worker
                + " was lost, and has not joined again within " + rejoinMs + " ms"), now);
    }

    /** A JVM that is stopped cannot end a task, nor itself; a thread that hangs in the library cannot be ended. */
    private void replaceUseless() {
        useless.forEach((executor, why) -> {
            log.accept("executor " + executor + " is to be replaced: " + why);
            rowsLost.accept(executor);
            if (!context.sc().killAndReplaceExecutor(executor)) {
                hanging.remove(executor); // it asks again, if Spark still has it
            }
        });
        useless.clear();
    }

    /** The worker of a task that has ended is still in the library. Does it hang, so that its process is to be ended? */
    synchronized boolean isStuck(String executor, int worker) {
        boolean hangs = policy.overdue(worker, now(), rejoinMs) != Long.MAX_VALUE;
        if (hangs && !context.getConf().getBoolean("spark.paceline.process", false) && hanging.add(executor)) {
            useless.put(executor, "worker " + worker + " hangs in the library");
        }
        return hangs;
    }

    synchronized void rowsLost(String executor) {
        rowsLost.accept(executor);
    }

    private void leaveDecommissioned() {
        for (Slot slot : slots) {
            if (slot.state == State.SUBMITTED && !slot.executor.isEmpty() && decommissioned.test(slot.executor)) {
                log.accept("executor " + slot.executor + " is decommissioned: its worker is to leave");
                slot.state = State.LEAVING;
                rowsLost.accept(slot.executor);
            }
        }
    }

    /** End so many leases, but none that is idle: first those that wait, then those that are pending, then the newest. */
    private void release(int surplus) {
        int left = surplus;
        List<Predicate<Slot>> order = List.of(slot -> slot.state == State.WAITING,
                slot -> slot.executor.isEmpty(), slot -> true);
        for (Predicate<Slot> kind : order) {
            for (int i = slots.size() - 1; i >= 0 && left > 0; i--) {
                Slot slot = slots.get(i);
                if (slot.state != State.LEAVING && !slot.isIdle() && kind.test(slot)) {
                    end(slot);
                    left--;
                }
            }
        }
    }

    private void end(Slot slot) {
        if (slot.state == State.WAITING) {
            slots.remove(slot);
            return;
        }
        slot.state = State.LEAVING;
        if (slot.executor.isEmpty()) {
            context.cancelJobGroup(slot.lease);
        }
    }

    private Slot find(String lease) {
        return slots.stream().filter(slot -> slot.lease.equals(lease)).findAny().orElse(null);
    }

    /** A lease runs on that executor, and does not train. May it, if there is `work`? */
    synchronized Reply join(String lease, String executor, String host, boolean work) {
        Slot slot = find(lease);
        if (slot == null) {
            return Reply.OVER;
        }
        slot.executor = executor;
        slot.host = host;
        slot.worker = Engine.Worker.NO_NUMBER;
        slot.trains = false;
        if (slot.state != State.SUBMITTED || decommissioned.test(executor)) {
            return Reply.OVER;
        }
        if (!policy.admits(host, now())) {
            return Reply.DECLINE;
        }
        slot.trains = work && count(other -> other.trains && other.isOpen() && other.state == State.SUBMITTED) < target;
        return slot.trains ? Reply.TRAIN : Reply.WAIT;
    }

    enum Reply {
        TRAIN,
        WAIT,
        DECLINE, // its host is in quarantine
        OVER // the lease is not wanted any more
    }

    /** Is an earlier lease on the same executor? Spark may start the lease of a lost executor there. */
    synchronized boolean isSecond(String lease, String executor) {
        for (Slot slot : slots) {
            if (slot.lease.equals(lease)) {
                return false;
            }
            if (slot.isOpen() && slot.executor.equals(executor)) {
                return true;
            }
        }
        return false;
    }

    /** The executors in which leases run, or are to run. */
    synchronized Set<String> executors() {
        return slots.stream().filter(Slot::isOpen).map(slot -> slot.executor.isEmpty() ? slot.place : slot.executor)
                .collect(Collectors.toSet());
    }

    /** Is that lease, which has that worker, to end? The last member of a run stays: its run would end with it. */
    synchronized boolean isToLeave(String lease, int worker) {
        Slot slot = find(lease);
        if (slot != null) {
            slot.worker = worker;
        }
        if (slot == null || slot.state != State.LEAVING) {
            return false;
        }
        slot.told |= members > 1 + slots.stream().filter(other -> other.told).count();
        return slot.told;
    }

    /** The run has a new member: whatever failed before does not count any more. */
    synchronized void workerJoined() {
        policy.workerJoined();
        for (Slot slot : slots) {
            slot.record = new RestartPolicy.Record();
        }
    }

    /** Has a lease found no records since the last call? It is submitted again at the next tick. */
    synchronized boolean takeNeed() {
        boolean needed = needsRows;
        needsRows = false;
        return needed;
    }

    /** Rows have been read: leases that wait may look for them at once. */
    synchronized void rowsArrived() {
        for (Slot slot : slots) {
            slot.dueMs = now();
        }
    }

    /** How many leases were submitted beyond those that the target asked for. */
    synchronized int resubmitted() {
        return Math.max(0, submitted - raised);
    }

    /** The run is over: leases cease to train, or are cancelled after so long. */
    void endRun(long millis) {
        end(millis, slot -> slot.isOpen() && slot.trains);
    }

    /** The session is over: leases end by themselves, or are cancelled after so long. */
    void close(long millis) {
        end(millis, Slot::isOpen);
    }

    private synchronized List<Slot> those(Predicate<Slot> kind) {
        return slots.stream().filter(kind).collect(Collectors.toList());
    }

    private void end(long millis, Predicate<Slot> busy) {
        long until = now() + millis;
        boolean cancelled = false;
        for (;;) {
            List<Slot> left = those(busy);
            if (left.isEmpty() || (cancelled && now() > until)) {
                return;
            }
            if (!cancelled && now() > until) {
                left.forEach(slot -> context.cancelJobGroup(slot.lease));
                cancelled = true;
                until = now() + millis;
            }
            sleep();
        }
    }

    private static void sleep() {
        try {
            Thread.sleep(50);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new PacelineException("interrupted while leases ended");
        }
    }
}
