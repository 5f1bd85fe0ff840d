package paceline.spark;

import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.function.ToIntFunction;
import java.util.stream.Collectors;

/** In which executors the rows of a fit may lie: only so many have a worker. Any thread may use it. */
final class RowPlaces {
    private final int least; // executors that the run needs to begin
    private final int most;
    private final Map<String, Integer> partitions = new HashMap<>(); // of each executor, as far as it was given any
    private final Set<String> unable = new HashSet<>(); // they could not keep rows
    private Set<String> trainers = Set.of(); // those that had rows when one was lost
    private boolean trains; // the run has begun
    private boolean adopts; // trainers take rows of the lost one
    private int share; // partitions of an executor, while others have fewer

    /** Rows are to lie in the executors `first`, and in others as far as there may be more. */
    RowPlaces(int least, int most, Collection<String> first) {
        this.least = least;
        this.most = most;
        first.forEach(executor -> partitions.put(executor, 0));
    }

    synchronized Set<String> executors() {
        return new HashSet<>(partitions.keySet());
    }

    /** All of so many partitions are to be read for the first time. */
    synchronized void beginIngest(int all) {
        share = Math.max(1, all / least);
    }

    synchronized void beginTraining() {
        trains = true;
    }

    /**
     * May a partition lie in that executor? As many as the run needs to begin get some, of which one may have to start
     * yet. Later, partitions of a lost executor go to one that comes in its place; where none does, those that train
     * get equal parts of them.
     */
    synchronized boolean admits(String executor) {
        int has = partitions.getOrDefault(executor, 0);
        boolean isFull = has >= share;
        if ((!partitions.containsKey(executor) && partitions.size() >= most) || unable.contains(executor)
                || (!trains && isFull && partitions.values().stream().filter(count -> count > 0).count() < least)
                || (trains && trainers.contains(executor) && (!adopts || isFull))) {
            return false;
        }
        partitions.put(executor, has + 1);
        return true;
    }

    /** May that executor adopt rows of a lost one, in whose place it has come? */
    synchronized boolean admitsAdopter(String executor) {
        return trains && !unable.contains(executor) && !partitions.containsKey(executor) && partitions.size() < most;
    }

    synchronized void adopted(String executor, int count) {
        partitions.merge(executor, count, Integer::sum);
    }

    synchronized void setUnable(String executor) {
        unable.add(executor);
    }

    synchronized void remove(String executor) {
        partitions.remove(executor);
    }

    /** An executor is lost; those that have partitions now are the ones that train. */
    synchronized void loseRows(ToIntFunction<String> partitionsOf) {
        trainers = partitions.keySet().stream().filter(executor -> partitionsOf.applyAsInt(executor) > 0)
                .collect(Collectors.toSet());
    }

    /** Missing ones of `all` partitions are read, for the `attempt`th time; if they stay, others may get more. */
    synchronized void beginReading(int all, int attempt, boolean adopting, ToIntFunction<String> partitionsOf) {
        adopts = adopting;
        partitions.replaceAll((executor, count) -> partitionsOf.applyAsInt(executor));
        int executors = Math.max(1, partitions.size());
        share = attempt * ((all + executors - 1) / executors);
    }

    /** Executors without rows that may get some. */
    synchronized Set<String> spare(Set<String> ready) {
        if (partitions.size() >= most) {
            return Set.of();
        }
        Set<String> spare = new HashSet<>(ready);
        spare.removeAll(partitions.keySet());
        spare.removeAll(unable);
        return spare;
    }
}
