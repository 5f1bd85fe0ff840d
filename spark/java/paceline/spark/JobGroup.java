package paceline.spark;

import org.apache.spark.api.java.JavaSparkContext;

/** Jobs that this thread submits meanwhile belong to a group; afterwards to the one before, as that of a stream. */
final class JobGroup {
    private static final String[] PROPERTIES =
            {"spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"};

    private final JavaSparkContext context;
    private final String[] before = new String[PROPERTIES.length];

    JobGroup(JavaSparkContext context, String group, String description) {
        this.context = context;
        for (int i = 0; i < PROPERTIES.length; i++) {
            before[i] = context.getLocalProperty(PROPERTIES[i]);
        }
        context.setJobGroup(group, description, true);
    }

    void leave() {
        for (int i = 0; i < PROPERTIES.length; i++) {
            context.setLocalProperty(PROPERTIES[i], before[i]);
        }
    }
}
