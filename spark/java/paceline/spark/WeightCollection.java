package paceline.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * SparkNet's WeightCollection (Moritz et al., "SparkNet: Training Deep Networks in Spark", 2016, §2): a map from the
 * names of layers to lists of weights, which Spark can send.
 */
public final class WeightCollection implements Serializable {
    private static final long serialVersionUID = 1;

    /** Under this name is what a net learns without a gradient, such as running means, in one vector. */
    public static final String STATE = "";

    private final Map<String, List<NDArray>> layers = new LinkedHashMap<>();

    /** In the order of the net. */
    public Set<String> layerNames() {
        return Collections.unmodifiableSet(layers.keySet());
    }

    /** Weights, then biases; an empty list: the layer has none. */
    public List<NDArray> get(String layer) {
        return layers.getOrDefault(layer, List.of());
    }

    /** Add an array to the end of a layer's list. */
    public WeightCollection put(String layer, NDArray weights) {
        layers.computeIfAbsent(layer, name -> new ArrayList<>()).add(weights);
        return this;
    }

    /** Add the other one's weights to these, which are changed and returned: a function for Spark's `reduce`. */
    public WeightCollection add(WeightCollection other) {
        if (!layers.keySet().equals(other.layers.keySet())) {
            throw new PacelineException("the layers " + layers.keySet() + " and " + other.layers.keySet() + " differ");
        }
        layers.forEach((layer, arrays) -> {
            List<NDArray> others = other.get(layer);
            if (arrays.size() != others.size()) {
                throw new PacelineException("layer " + layer + " has " + arrays.size() + " arrays, and "
                        + others.size());
            }
            for (int i = 0; i < arrays.size(); i++) {
                arrays.get(i).add(others.get(i));
            }
        });
        return this;
    }

    public WeightCollection scalarDivide(float divisor) {
        layers.values().forEach(arrays -> arrays.forEach(array -> array.scalarDivide(divisor)));
        return this;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof WeightCollection && layers.equals(((WeightCollection) other).layers);
    }

    @Override
    public int hashCode() {
        return layers.hashCode();
    }
}
