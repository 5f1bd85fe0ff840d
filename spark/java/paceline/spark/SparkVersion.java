package paceline.spark;

import java.util.regex.Matcher;
import java.util.regex.Pattern;
import scala.util.Properties;

/** The versions of Spark and Scala with which the module works. */
final class SparkVersion {
    private static final Pattern NUMBERS = Pattern.compile("(\\d{1,4})\\.(\\d{1,4})(?:\\D.*)?");
    private static final String SCALA = "2.13";

    private SparkVersion() {}

    /** Refuse a process with another version: later its first call with another signature would fail to link. */
    static void check() {
        check(org.apache.spark.package$.MODULE$.SPARK_VERSION(), Properties.versionNumberString());
    }

    static void check(String spark, String scala) {
        Matcher numbers = NUMBERS.matcher(scala);
        if (!hasSpark(spark) || !numbers.matches() || !(numbers.group(1) + "." + numbers.group(2)).equals(SCALA)) {
            throw new PacelineException("this is Spark " + spark + " with Scala " + scala
                    + ": paceline-spark.jar needs Spark 3.5 or 4 with Scala " + SCALA);
        }
    }

    private static boolean hasSpark(String version) {
        Matcher numbers = NUMBERS.matcher(version);
        if (!numbers.matches()) {
            return false;
        }
        int major = Integer.parseInt(numbers.group(1));
        return major == 4 || (major == 3 && Integer.parseInt(numbers.group(2)) == 5);
    }
}
