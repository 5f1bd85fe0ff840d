package paceline.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * The partitions of lost executors that one which has come may look for in the files of its host. It travels as text:
 * the schema, how many partitions there are, those that are lacking with their numbers of records, living executors.
 */
final class RowsOffer {
    /** The process of an engine ends so long after its executor at most. */
    private static final long END_NS = TimeUnit.SECONDS.toNanos(5);
    private static final long PAUSE_MS = 20;

    final RecordSchema schema;
    private final int partitions;
    private final Map<Integer, Long> lacking;
    private final Set<String> living;

    RowsOffer(RecordSchema schema, int partitions, Map<Integer, Long> lacking, Set<String> living) {
        this.schema = schema;
        this.partitions = partitions;
        this.lacking = lacking;
        this.living = living;
    }

    String text() {
        return String.join("\n", DriverEnd.OFFER, schema.text(), Integer.toString(partitions), lacking.entrySet()
                .stream().map(one -> one.getKey() + ":" + one.getValue()).collect(Collectors.joining(",")),
                String.join(",", living));
    }

    /** Null: nothing is offered. */
    static RowsOffer of(String text) {
        String[] line = text.split("\n", -1);
        if (!line[0].equals(DriverEnd.OFFER)) {
            return null;
        }
        Map<Integer, Long> lacking = new TreeMap<>();
        for (String one : line[3].split(",")) {
            String[] number = one.split(":");
            lacking.put(Integer.parseInt(number[0]), Long.parseLong(number[1]));
        }
        return new RowsOffer(RecordSchema.of(line[1]), Integer.parseInt(line[2]), lacking,
                new HashSet<>(List.of(line[4].split(","))));
    }

    static String join(List<Integer> numbers) {
        return numbers.stream().map(String::valueOf).collect(Collectors.joining(","));
    }

    static List<Integer> split(String numbers) {
        return Arrays.stream(numbers.split(",")).filter(number -> !number.isEmpty()).map(Integer::valueOf)
                .collect(Collectors.toList());
    }

    /** Adopt from these files what is lacking. Returns the partitions that have come. */
    List<Integer> take(ExecutorStore store, List<KeptRows.Kept> files) throws InterruptedException {
        List<Integer> all = new ArrayList<>();
        long until = System.nanoTime() + END_NS;
        for (KeptRows.Kept file : files) {
            List<Integer> came = store.adopt(file, lacking, partitions);
            while (came == null && !living.contains(file.executor) && System.nanoTime() < until) {
                Thread.sleep(PAUSE_MS); // a process that has lost its executor
                came = store.adopt(file, lacking, partitions);
            }
            if (came != null) {
                all.addAll(came);
            }
        }
        return all;
    }
}
