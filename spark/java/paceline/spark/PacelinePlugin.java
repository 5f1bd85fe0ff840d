package paceline.spark;

import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;

/** The plugin of an application that trains: spark.plugins=paceline.spark.PacelinePlugin. */
public final class PacelinePlugin implements SparkPlugin {
    @Override
    public DriverPlugin driverPlugin() {
        return new DriverEnd();
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return new ExecutorEnd();
    }
}
