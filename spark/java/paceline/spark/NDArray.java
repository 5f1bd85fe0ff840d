package paceline.spark;

import java.io.Serializable;
import java.util.Arrays;

/**
 * SparkNet's NDArray (Moritz et al., "SparkNet: Training Deep Networks in Spark", 2016, §2): floats with any number of
 * dimensions, the last one's side by side.
 */
public final class NDArray implements Serializable {
    private static final long serialVersionUID = 1;

    private final float[] data;
    private final int[] shape;

    /** The floats as they are, not a copy. Without a shape it is a vector. */
    public NDArray(float[] data, int... shape) {
        this.data = data;
        this.shape = shape.length == 0 ? new int[] {data.length} : shape.clone();
        long size = 1;
        for (int length : this.shape) {
            size = Math.multiplyExact(size, length);
        }
        if (size != data.length) {
            throw new PacelineException(data.length + " floats, and the shape " + Arrays.toString(this.shape) + " has "
                    + size);
        }
    }

    public int[] shape() {
        return shape.clone();
    }

    public int size() {
        return data.length;
    }

    /** All floats, the array's own. */
    public float[] toFlat() {
        return data;
    }

    private int offset(int... indices) {
        int at = 0;
        for (int i = 0; i < indices.length; i++) {
            if (i >= shape.length || indices[i] < 0 || indices[i] >= shape[i]) {
                throw outside(indices);
            }
            at = at * shape[i] + indices[i];
        }
        return at;
    }

    private PacelineException outside(int... indices) {
        return new PacelineException("there is no " + Arrays.toString(indices) + " in the shape "
                + Arrays.toString(shape));
    }

    public float get(int... indices) {
        if (indices.length != shape.length) {
            throw outside(indices);
        }
        return data[offset(indices)];
    }

    public void set(float value, int... indices) {
        if (indices.length != shape.length) {
            throw outside(indices);
        }
        data[offset(indices)] = value;
    }

    /** A copy of part `index` of the first dimension. */
    public NDArray slice(int index) {
        if (shape.length < 2) {
            throw outside(index);
        }
        int each = size() / Math.max(1, shape[0]);
        int from = offset(index) * each;
        return new NDArray(Arrays.copyOfRange(data, from, from + each), Arrays.copyOfRange(shape, 1, shape.length));
    }

    /** Add the other one's floats to these. */
    public NDArray add(NDArray other) {
        if (!Arrays.equals(shape, other.shape)) {
            throw new PacelineException("the shapes " + Arrays.toString(shape) + " and "
                    + Arrays.toString(other.shape) + " differ");
        }
        for (int i = 0; i < data.length; i++) {
            data[i] += other.data[i];
        }
        return this;
    }

    public NDArray scalarDivide(float divisor) {
        for (int i = 0; i < data.length; i++) {
            data[i] /= divisor;
        }
        return this;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof NDArray && Arrays.equals(shape, ((NDArray) other).shape)
                && Arrays.equals(data, ((NDArray) other).data);
    }

    @Override
    public int hashCode() {
        return 31 * Arrays.hashCode(shape) + Arrays.hashCode(data);
    }
}
