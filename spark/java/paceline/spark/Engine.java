package paceline.spark;

import java.io.Serializable;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * The library as an executor uses it: records that tasks append, and then a worker that trains on
 * them. It is in this JVM ({@link LocalEngine}), or in a process of its own ({@link EngineProcess}),
 * whose end is not the executor's. One thread uses an engine at a time, but one may append while
 * another trains, and several may call a team.
 */
interface Engine extends AutoCloseable {
    /** The name under which jobs find the records. */
    String ROWS = "rows";

    /** Expect records, before the first is appended; beyond the limit, or all if they are kept, they are in a file. */
    void open(RecordSchema schema, RowsLimit limit);

    /**
     * Add records, which have an identity by which the run knows them again. A worker may train on them from now on,
     * and takes them if it trains already.
     */
    void append(PackedRows rows, long identity);

    /** Which records have come out of a file, and what was wrong with it. */
    final class Adoption implements Serializable {
        private static final long serialVersionUID = 1;
        final boolean[] came;
        final int status; // of the library
        final String message;

        Adoption(boolean[] came, int status, String message) {
            this.came = came;
            this.status = status;
            this.message = message;
        }

        /** Those of the list that have come. */
        <T> List<T> of(List<T> wanted) {
            return IntStream.range(0, came.length).filter(i -> came[i]).mapToObj(wanted::get)
                    .collect(Collectors.toList());
        }
    }

    /** Take records with these identities and numbers from a file that an engine has kept, as Native.streamAdopt. */
    Adoption adopt(String file, long[] identities, long[] records);

    /** Start a worker of the run whose driver has this address; options as Native.workOpen. */
    Worker work(String driver, List<String> options);

    /** A call of the library with a handle. It travels to where the engine is. */
    interface Call extends Serializable {
        Reply run(long handle);
    }

    /** What it returned. */
    final class Reply implements Serializable {
        private static final long serialVersionUID = 1;
        final long status; // or a handle
        final String message; // of a status below 0
        final float[] values; // null: none

        Reply(long status) {
            this(status, null);
        }

        Reply(long status, float[] values) {
            this.status = status;
            this.values = values;
            message = status < 0 ? Native.message() : "";
        }
    }

    /** Call with the engine's handle. */
    Reply call(Call call);

    /** False: its process has ended, and its records are gone. */
    boolean usable();

    /** Free it and its records. A worker must be closed. */
    @Override
    void close();

    /** A worker that trains on a thread of its own. */
    interface Worker {
        int NO_NUMBER = -1;

        /** Wait so long for its end. An interrupt of the caller ends the wait, and is kept. */
        boolean ended(long millis);

        /** Let it leave the run in good order. */
        void leave();

        /** By which the run knows it since it joined, perhaps again; NO_NUMBER: it has not joined yet. */
        int number();

        /** Once it has ended: 0, or a status of the library. */
        int status();

        /** What the library says of a status that is not 0. */
        String message();

        /** End it by force, with its process and its records. False: it has no process of its own. */
        boolean kill();

        /** Free it. False: its thread is still in the library, and the engine must stay. */
        boolean close();
    }
}
