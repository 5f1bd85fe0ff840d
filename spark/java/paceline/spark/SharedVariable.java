package paceline.spark;

import java.io.Serializable;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.SparkSession;

/**
 * A vector that tasks reduce together, without Spark's shuffle: Elastic's Init, Submit and Get. In each round 0, 1, 2
 * and so on, each of the numbered tasks submits one vector, in any executor or the driver. When all have, each process
 * can get the result. A task that Spark runs twice counts once, and the result has the same bits everywhere.
 *
 * <p>A process that is lost loses its vectors for rounds that are not done. Such a round waits until the tasks submit
 * again, in whichever process. Spark runs a task again that has not ended; of tasks that end before the round does, run
 * the action again: what is there already is ignored.
 *
 * <p>Rounds of a variable are done in order, and 8 may be open at once. The last two results are kept. A process that
 * joins later has none of the results before: a task that is run again begins with {@link #round}.
 *
 * <p>The driver makes the variable, and tasks use the handle that is serialised with their function. All methods may be
 * used by any number of threads.
 */
public final class SharedVariable implements Serializable {
    private static final long serialVersionUID = 1;

    /** What becomes of the vectors of the tasks, in each place. */
    public enum Reduction {
        SUM(Native.SUM), MEAN(Native.MEAN), MAX(Native.MAX), MIN(Native.MIN);

        private final int number;

        Reduction(int number) {
            this.number = number;
        }
    }

    private final String team;
    private final String key;
    private final int n;
    private final int numTasks;
    private final Reduction reduction;

    private SharedVariable(String team, String key, int n, int numTasks, Reduction reduction) {
        this.team = team;
        this.key = key;
        this.n = n;
        this.numTasks = numTasks;
        this.reduction = reduction;
    }

    /**
     * Make the variable of that key, or find it, at the driver. It lives as long as the application.
     *
     * @param key 1 to 63 characters
     * @param n the floats of a vector
     * @param numTasks the tasks of a round, at most 16384
     * @throws PacelineException the application has no plugin, or the key has a variable of another kind
     */
    public static SharedVariable init(JavaSparkContext context, String key, int n, int numTasks, Reduction reduction) {
        SharedTeam member = SharedTeam.ofDriver(context.sc());
        SharedVariable variable = new SharedVariable(member.id(), key, n, numTasks, reduction);
        variable.number(member);
        return variable;
    }

    /** The same for the application of a session. */
    public static SharedVariable init(SparkSession session, String key, int n, int numTasks, Reduction reduction) {
        return init(JavaSparkContext.fromSparkContext(session.sparkContext()), key, n, numTasks, reduction);
    }

    public String key() {
        return key;
    }

    public int length() {
        return n;
    }

    public int numTasks() {
        return numTasks;
    }

    /**
     * Submit a task's vector for a round. The values are copied, and the call waits for no result; where the library has
     * a process, calls go to it one at a time. The first vector of a task counts; later ones, and those of a round that
     * is done, are ignored.
     *
     * @throws PacelineException the vector has another length, there is no such task, the round is 8 or more beyond the
     *     first that is not done, or the team has lost this process
     */
    public void submit(long round, int task, float[] values) {
        SharedTeam member = SharedTeam.find(team);
        int number = number(member);
        member.check(member.call(own -> new Engine.Reply(Native.sharedSubmit(own, number, round, task, values, null))));
    }

    /** The same with the floats from the buffer's position to its limit; the position stays. */
    public void submit(long round, int task, FloatBuffer values) {
        SharedTeam member = SharedTeam.find(team);
        if (values.isDirect() && values.order() == ByteOrder.nativeOrder() && !member.hasProcess()) {
            int number = number(member);
            FloatBuffer floats = values.slice();
            member.check(member.call(
                    own -> new Engine.Reply(Native.sharedSubmit(own, number, round, task, null, floats))));
        } else {
            float[] copy = new float[values.remaining()];
            values.duplicate().get(copy);
            submit(round, task, copy);
        }
    }

    /**
     * The result of a round; waits for it.
     *
     * @throws TimeoutException it is not there in time
     * @throws PacelineException the result is no longer kept, or the process joined after it; the team has lost this
     *     process; Spark ends the task, which is noticed within a tenth of a second, or when the vectors of others have
     *     gone to the library's process
     */
    public float[] get(long round, Duration timeout) throws TimeoutException {
        long until = System.nanoTime() + timeout.toNanos();
        SharedTeam member = SharedTeam.find(team);
        int number = number(member);
        for (;;) {
            long left = Math.max(0, TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime()));
            Engine.Reply reply = member.await(number, round, (int) Math.min(left, SharedTeam.SLICE_MS));
            if (reply.status != Native.ERR_TIMEOUT) {
                member.check(reply);
                int length = n;
                return member.check(member.call(own -> {
                    float[] result = new float[length];
                    return new Engine.Reply(Native.sharedGet(own, number, round, result, 0), result);
                })).values;
            }
            if (left == 0) {
                throw new TimeoutException(reply.message);
            }
            SharedTeam.checkTask();
        }
    }

    /** The first round that is not done in this process; where it has just joined, the first in which it takes part. */
    public long round() {
        SharedTeam member = SharedTeam.find(team);
        return member.round(number(member));
    }

    private int number(SharedTeam member) {
        return member.number(key, n, numTasks, reduction.number);
    }
}
