"""Real streams that come inside packages, and what learners are shown of them.

Each stream is X (n, d) and y (n,), in the order of its file. Nothing is downloaded. Labels of two
classes are 0 and 1.
"""

import numpy as np

MOST_ROWS = 5000  # of a longer file the first so many: river's learners take milliseconds a row
FOURIER = 300


def standardised_so_far(X):
    """Each row less the mean and over the deviation of the rows up to itself, as river does it.

    No row sees those behind it. An input that has not varied yet is 0.
    """
    count = np.arange(1, len(X) + 1)[:, None]
    shifted = X - X[0]  # a year is large beside its spread: squares of it would cancel
    mean = np.cumsum(shifted, axis=0) / count
    # Welford: the sum of squares about the mean grows by (x − mean before)(x − mean now).
    before = np.concatenate([mean[:1], mean[:-1]])
    variance = np.cumsum((shifted - before) * (shifted - mean), axis=0) / count
    varied = variance > 1e-20 * np.maximum(1.0, np.abs(shifted)) ** 2
    return np.where(varied, (shifted - mean) / np.sqrt(np.where(varied, variance, 1.0)), 0.0)


def fourier_features(Z, seed=0):
    """Random Fourier features of a Gaussian kernel, (n, 300), as scikit-learn's RBFSampler's.

    Its width is what scikit-learn takes untold: gamma = 1 / inputs, for inputs of variance 1.
    """
    rng = np.random.default_rng(seed)
    directions = rng.normal(0, np.sqrt(2 / Z.shape[1]), (Z.shape[1], FOURIER))
    return np.sqrt(2 / FOURIER) * np.cos(Z @ directions + rng.uniform(0, 2 * np.pi, FOURIER))


def lagged(series, lags):
    """The values before each, newest first, and the value itself."""
    series = np.asarray(series, dtype=float)
    X = np.column_stack([series[lags - 1 - i : len(series) - 1 - i] for i in range(lags)])
    return X, series[lags:]


def numbers_of(rows):
    """Dictionaries as a matrix: a column for each number, and one for each value of a word."""
    columns = []
    for key in rows[0]:
        values = [row[key] for row in rows]
        if isinstance(values[0], str):
            columns += [[value == word for value in values] for word in sorted(set(values))]
        else:
            columns.append(values)
    return np.array(columns, dtype=float).T


def river_rows(name, label=float, without=()):
    from river import datasets

    inputs, labels = zip(*getattr(datasets, name)(), strict=True)
    kept = [{key: value for key, value in row.items() if key not in without} for row in inputs]
    return numbers_of(kept), np.array([label(one) for one in labels], dtype=float)


def river_series(name):
    from river import datasets

    return np.array([value for _, value in getattr(datasets, name)()], dtype=float)


def statsmodels_table(name):
    import statsmodels.api

    return getattr(statsmodels.api.datasets, name).load_pandas().data


def vega_table(name):
    from vega_datasets import local_data

    return getattr(local_data, name)()


def scikit_learn(name, label=float):
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return X, np.array([label(one) for one in y], dtype=float)


def el_nino():
    months = statsmodels_table("elnino").drop(columns="YEAR").to_numpy(float)
    return lagged(months.reshape(-1), 12)


def carbon_dioxide():
    return lagged(statsmodels_table("co2")["co2"].ffill(), 52)  # a gap repeats the value before it


def chick_weights():
    """A chick's number is a name, not a quantity, and the diet is one of four."""
    X, y = river_rows("ChickWeights", without=("chick",))
    time, diet = X.T
    return np.column_stack([time, *(diet == one for one in np.unique(diet))]), y


def seattle_weather():
    """Tomorrow's maximum from today's weather."""
    table = vega_table("seattle_weather")
    today = table[["precipitation", "temp_max", "temp_min", "wind"]].to_numpy(float)
    return today[:-1], table["temp_max"].to_numpy(float)[1:]


def cars():
    table = vega_table("cars").dropna()
    origins = [table["Origin"] == one for one in sorted(set(table["Origin"]))]
    names = ["Cylinders", "Displacement", "Horsepower", "Weight_in_lbs", "Acceleration"]
    X = [table[name] for name in names] + [table["Year"].dt.year] + origins
    return np.column_stack(X).astype(float), table["Miles_per_Gallon"].to_numpy(float)


def doctor_visits():
    table = statsmodels_table("randhie")
    return table.drop(columns="mdvis").to_numpy(float), table["mdvis"].to_numpy(float)


STREAMS = {
    "airline passengers": lambda: lagged(river_series("AirlinePassengers"), 12),
    "sunspots": lambda: lagged(statsmodels_table("sunspots")["SUNACTIVITY"], 12),
    "El Niño": el_nino,
    "water flow": lambda: lagged(river_series("WaterFlow"), 24),
    "CO₂": carbon_dioxide,
    "Seattle's hours": lambda: lagged(vega_table("seattle_temps")["temp"], 24),
    "Seattle's days": seattle_weather,
    "S&P 500": lambda: river_rows("SP500Stocks"),
    "Trump's approval": lambda: river_rows("TrumpApproval"),
    "chick weights": chick_weights,
    "solar flares": lambda: river_rows("SolarFlare", lambda y: y["c-class-flares"]),
    "cars": cars,
    "diabetes": lambda: scikit_learn("diabetes"),
    "doctor visits": doctor_visits,
    "phishing": lambda: river_rows("Phishing"),
    "image: path or not": lambda: river_rows("ImageSegments", lambda y: y == "path"),
    "bananas": lambda: river_rows("Bananas"),
    "digits: odd or even": lambda: scikit_learn("digits", lambda y: y % 2),
    "yeast: class 1": lambda: river_rows("Yeast", lambda y: y["Class1"]),
}


def stream(name, shuffled):
    """The same rows in both orders."""
    X, y = (part[:MOST_ROWS] for part in STREAMS[name]())
    order = np.random.default_rng(0).permutation(len(y)) if shuffled else np.arange(len(y))
    return X[order], y[order]
