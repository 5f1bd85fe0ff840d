package paceline.spark;

import java.io.File;
import java.io.Serializable;
import java.util.Arrays;
import java.util.Comparator;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;

/** How many bytes of rows an executor keeps in memory, and the folder or the file that has the others. */
final class RowsLimit implements Serializable {
    static final String SETTING = "spark.paceline.rowsMemory";
    static final RowsLimit NONE = new RowsLimit(Long.MAX_VALUE, null);

    private static final long serialVersionUID = 1;
    private static final long MIB = 1 << 20;
    private static final String OVERHEAD = "spark.executor.memoryOverhead";
    /** What Spark takes without these settings. */
    private static final double OVERHEAD_FACTOR = 0.1;
    private static final String OVERHEAD_LEAST = "384m";
    private static final String HEAP = "1g";
    /** The net, its batch and the JVM need the other half. */
    private static final int PART = 2;

    final long bytes;
    final String folder; // null: the system's
    final String kept; // the path of a file that outlives the executor and has all rows; null: there is none
    final long fit; // the identity of its fit

    RowsLimit(long bytes, String folder) {
        this(bytes, folder, null, 0);
    }

    private RowsLimit(long bytes, String folder, String kept, long fit) {
        this.bytes = bytes;
        this.folder = folder;
        this.kept = kept;
        this.fit = fit;
    }

    RowsLimit keptIn(String file, long ofFit) {
        return new RowsLimit(bytes, folder, file, ofFit);
    }

    /** Of this executor: the setting, or half of the memory that Spark leaves it besides its heap. */
    static RowsLimit ofExecutor(SparkConf conf) {
        return new RowsLimit(bytes(conf), roomiest());
    }

    static long bytes(SparkConf conf) {
        return conf.contains(SETTING) ? conf.getSizeAsBytes(SETTING) : overheadMib(conf) * MIB / PART;
    }

    private static long overheadMib(SparkConf conf) {
        if (conf.contains(OVERHEAD)) {
            return conf.getSizeAsMb(OVERHEAD);
        }
        double share = conf.getSizeAsMb("spark.executor.memory", HEAP)
                * conf.getDouble("spark.executor.memoryOverheadFactor", OVERHEAD_FACTOR);
        return Math.max((long) share, conf.getSizeAsMb("spark.executor.minMemoryOverhead", OVERHEAD_LEAST));
    }

    /** Of the local folders that Spark has given this executor. One that is gone has no room. */
    static String roomiest() {
        return Arrays.stream(SparkEnv.get().blockManager().diskBlockManager().localDirs())
                .max(Comparator.comparingLong(File::getUsableSpace)).orElseThrow().getPath();
    }
}
