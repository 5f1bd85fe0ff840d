package paceline.spark;

import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.expressions.Window;
import org.apache.spark.sql.functions;

/**
 * Chooses the rows that a fit holds out for validation (the job's `validation`), equally by class: of each class those
 * whose hashes are lowest. A row is chosen by what it contains, so the choice is the same when a partition is read
 * again, in whichever order.
 */
final class HoldOut {
    private HoldOut() {}

    /**
     * `rows` have the columns features, label and test. Returns them with a fourth one: is the row held out? There are
     * `held` such rows, or fewer, because equal rows stay together. Reads the rows twice.
     */
    static Dataset<Row> mark(Dataset<Row> rows, int held, int classes) {
        Column hash = functions.xxhash64(functions.col("features"), functions.col("label"));
        Column label = functions.expr("try_cast(label as int)"); // of a bad row null, or another class
        Column test = functions.coalesce(functions.col("test"), functions.lit(false));
        Dataset<Row> candidates = rows.filter(functions.not(test).and(functions.col("features").isNotNull()))
                .select(label.as("label"), hash.as("hash"))
                .filter(functions.col("label").between(0, classes - 1));
        Column limit = functions.get(functions.lit(limits(candidates, held, classes)), label);
        return rows.select(functions.col("features"), functions.col("label"), test.as("test"),
                functions.not(test).and(functions.coalesce(hash.lt(limit), functions.lit(false))).as("held"));
    }

    /** Of each class the lowest hash that stays in the training set. */
    private static long[] limits(Dataset<Row> candidates, int held, int classes) {
        int[] take = quotas(candidates.groupBy("label").count().orderBy("label").collectAsList(), held, classes);
        int most = Arrays.stream(take).max().orElse(0); // others take one less
        List<Row> bounds = candidates.withColumn("rank",
                functions.row_number().over(Window.partitionBy("label").orderBy("hash")))
                .filter(functions.col("rank").between(most, most + 1)).collectAsList();
        long[] limits = new long[classes];
        Arrays.fill(limits, Long.MIN_VALUE);
        for (Row bound : bounds) {
            int label = bound.getInt(0);
            if (bound.getInt(2) == take[label] + 1) {
                limits[label] = bound.getLong(1);
            }
        }
        return limits;
    }

    /** An equal share for each class that occurs; the first ones take the rest. Each class keeps a row to train on. */
    private static int[] quotas(List<Row> counts, int held, int classes) {
        int[] take = new int[classes];
        int share = counts.isEmpty() ? 0 : held / counts.size();
        int rest = counts.isEmpty() ? held : held % counts.size();
        for (Row count : counts) {
            long rows = count.getLong(1);
            if (rows <= share) {
                throw new PacelineException("validation: " + held + " held out are " + share
                        + " a class or more, but class " + count.getInt(0) + " has " + rows + " rows and must keep one");
            }
            int more = rest > 0 && rows > share + 1 ? 1 : 0;
            take[count.getInt(0)] = share + more;
            rest -= more;
        }
        if (rest > 0) {
            throw new PacelineException("validation: " + held + " held out are " + rest + " more than " + share
                    + " a class, which no class can give");
        }
        return take;
    }
}
