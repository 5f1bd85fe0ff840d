package paceline.spark;

import java.io.Serializable;
import java.lang.ref.SoftReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedDeque;
import org.apache.spark.sql.Row;

/**
 * Records of one partition in the heap, until all of its rows have been read: a task that fails
 * half-way leaves nothing in the store, so that its repetition adds no record twice.
 */
final class PackedRows implements Serializable {
    private static final long serialVersionUID = 1;
    private static final int CHUNK_BYTES = 1 << 20;

    /**
     * Chunks of sets whose rows have gone into a store, for the next partition. The collector has moved them to the old
     * generation by then; new ones would be copied there again, which takes longer than to read the rows.
     */
    private static final Deque<SoftReference<byte[]>> FREE = new ConcurrentLinkedDeque<>();

    private final RecordSchema schema;
    private final int each; // records of a full chunk
    private final boolean reuses; // chunks; such a set does not travel
    private final List<byte[]> chunks = new ArrayList<>();
    private int[] labels = new int[64];
    private int count;
    private transient Integer[] order; // null: as they were added
    private transient ByteBuffer open; // the last chunk

    PackedRows(RecordSchema schema) {
        this(schema, false);
    }

    private PackedRows(RecordSchema schema, boolean reuses) {
        this.schema = schema;
        this.reuses = reuses && schema.bytes() <= CHUNK_BYTES;
        each = Math.max(1, CHUNK_BYTES / schema.bytes());
    }

    /** A set for a store in this process, after which release() is called. */
    static PackedRows forStore(RecordSchema schema) {
        return new PackedRows(schema, true);
    }

    int count() {
        return count;
    }

    private byte[] newChunk() {
        for (SoftReference<byte[]> free; reuses && (free = FREE.poll()) != null;) {
            byte[] chunk = free.get();
            if (chunk != null) {
                return chunk;
            }
        }
        return new byte[reuses ? CHUNK_BYTES : each * schema.bytes()];
    }

    /** Its rows are not needed any more. */
    void release() {
        if (reuses) {
            chunks.forEach(chunk -> FREE.push(new SoftReference<>(chunk)));
        }
        chunks.clear();
        open = null;
        order = null;
        count = 0;
    }

    /** Add a row. Returns null, or what is wrong with it; it is then not added. */
    String add(RowPacker packer, Row row, int features, int label) {
        String wrong = packer.checkLabel(row, label);
        if (wrong != null) {
            return wrong;
        }
        if (open == null || !open.hasRemaining()) {
            byte[] chunk = newChunk();
            chunks.add(chunk);
            open = ByteBuffer.wrap(chunk, 0, each * schema.bytes()).order(ByteOrder.nativeOrder());
        }
        int from = open.position();
        wrong = packer.putValues(row, features, open);
        if (wrong != null) {
            open.position(from);
            return wrong;
        }
        if (count == labels.length) {
            labels = Arrays.copyOf(labels, count * 2);
        }
        labels[count++] = RowPacker.label(row, label);
        return null;
    }

    /** Free what is not used, before the rows travel. */
    PackedRows trim() {
        labels = Arrays.copyOf(labels, count);
        int last = chunks.size() - 1;
        if (last >= 0) {
            chunks.set(last,
                    Arrays.copyOf(chunks.get(last), (count - last * each) * schema.bytes()));
        }
        open = null;
        return this;
    }

    /** Put them in an order that depends on the records alone: Spark may deliver equal rows in another one. */
    void sort() {
        order = new Integer[count];
        Arrays.setAll(order, i -> i);
        int bytes = schema.bytes();
        Arrays.sort(order, (a, b) -> {
            int from = a % each * bytes;
            int other = b % each * bytes;
            int compared = Arrays.compareUnsigned(chunks.get(a / each), from, from + bytes, chunks.get(b / each), other,
                    other + bytes);
            return compared != 0 ? compared : Integer.compare(labels[a], labels[b]);
        });
    }

    private int at(int i) {
        return order == null ? i : order[i];
    }

    /** Append all records to a stream of the engine, or throw with the library's message. */
    void appendTo(long stream) {
        ByteBuffer[] next = new ByteBuffer[2];
        for (int at = 0; at < count;) {
            if (Native.streamNext(stream, next) != 0) {
                throw new PacelineException("records: " + Native.message());
            }
            ByteBuffer values = next[0];
            ByteBuffer numbers = next[1].order(ByteOrder.nativeOrder());
            int room = Math.min(values.capacity() / schema.bytes(), count - at);
            if (order == null) {
                int in = at % each;
                room = Math.min(room, each - in);
                values.put(chunks.get(at / each), in * schema.bytes(), room * schema.bytes());
            }
            for (int i = at; i < at + room; i++) {
                if (order != null) {
                    values.put(chunks.get(at(i) / each), at(i) % each * schema.bytes(), schema.bytes());
                }
                numbers.putInt(labels[at(i)]);
            }
            if (Native.streamCommit(stream, room) != 0) {
                throw new PacelineException("records: " + Native.message());
            }
            at += room;
        }
    }
}
