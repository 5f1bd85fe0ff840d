package paceline.spark;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkConf;
import org.apache.spark.resource.ExecutorResourceRequests;
import org.apache.spark.resource.ResourceProfile;
import org.apache.spark.resource.ResourceProfileBuilder;
import org.apache.spark.resource.TaskResourceRequests;

/**
 * The executors in which leases run under dynamic allocation. A profile of their own keeps other jobs out of them, so
 * that executors which read rows become idle while leases train, and Spark ends them. Without dynamic allocation Spark
 * has executors of one kind alone, and leases share them with other jobs.
 */
final class LeaseProfile {
    static final String CORES = "spark.paceline.workerCores";
    static final String MEMORY = "spark.paceline.workerMemory";
    static final String OVERHEAD = "spark.paceline.workerMemoryOverhead";

    /** By its settings: executors of one profile are not used for an equal one. */
    private static final Map<List<String>, ResourceProfile> BUILT = new ConcurrentHashMap<>();

    private LeaseProfile() {}

    /** That of the application; null: leases run in any executor. */
    static ResourceProfile of(SparkConf conf) {
        if (!conf.getBoolean("spark.dynamicAllocation.enabled", false)) {
            return null;
        }
        List<String> settings = List.of(conf.get(CORES, conf.get("spark.executor.cores", "")),
                conf.get(MEMORY, conf.get("spark.executor.memory", "1g")),
                conf.get(OVERHEAD, conf.get("spark.executor.memoryOverhead", "")),
                conf.get("spark.task.cpus", "1"));
        return BUILT.computeIfAbsent(settings, LeaseProfile::build);
    }

    private static ResourceProfile build(List<String> settings) {
        ExecutorResourceRequests executor = new ExecutorResourceRequests().memory(settings.get(1));
        if (!settings.get(0).isEmpty()) {
            executor.cores(Integer.parseInt(settings.get(0)));
        }
        if (!settings.get(2).isEmpty()) {
            executor.memoryOverhead(settings.get(2));
        }
        return new ResourceProfileBuilder().require(executor)
                .require(new TaskResourceRequests().cpus(Integer.parseInt(settings.get(3)))).build();
    }
}
