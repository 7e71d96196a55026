"""Real streams from packages, and their inputs for learners.

A stream is X (n, d) and y (n,), in the order of its file. `STREAMS` are those of settings.py and
need no download; labels of two classes are 0 and 1. `numbers` and `classes` are the streams of
streams.py; the longer ones are files that stream_files.py downloads.
"""

import numpy as np

MOST_ROWS = 5000  # of a longer file the first rows: river's learners take milliseconds per row
FOURIER = 300


def standardise_so_far(X):
    """Subtract the mean and divide by the deviation of the rows up to each row, as river does.

    Later rows have no influence. An input that has not varied yet is 0.
    """
    count = np.arange(1, len(X) + 1)[:, None]
    shifted = X - X[0]  # a year is large beside its spread: squares of it would cancel
    mean = np.cumsum(shifted, axis=0) / count
    # Welford: the sum of squares about the mean grows by (x − mean before)(x − mean now).
    before = np.concatenate([mean[:1], mean[:-1]])
    variance = np.cumsum((shifted - before) * (shifted - mean), axis=0) / count
    varied = variance > 1e-20 * np.maximum(1.0, np.abs(shifted)) ** 2
    return np.where(varied, (shifted - mean) / np.sqrt(np.where(varied, variance, 1.0)), 0.0)


def compute_fourier_features(Z, seed=0):
    """Random Fourier features of a Gaussian kernel, (n, 300), as scikit-learn's RBFSampler's.

    The width is scikit-learn's default: gamma = 1 / inputs, for inputs of variance 1.
    """
    rng = np.random.default_rng(seed)
    directions = rng.normal(0, np.sqrt(2 / Z.shape[1]), (Z.shape[1], FOURIER))
    return np.sqrt(2 / FOURIER) * np.cos(Z @ directions + rng.uniform(0, 2 * np.pi, FOURIER))


def make_lags(series, lags):
    """Return the values before each value, newest first, and the value."""
    series = np.asarray(series, dtype=float)
    X = np.column_stack([series[lags - 1 - i : len(series) - 1 - i] for i in range(lags)])
    return X, series[lags:]


def make_matrix(rows):
    """Return dictionaries as a matrix: a column for each number, and for each value of a string."""
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
    return make_matrix(kept), np.array([label(one) for one in labels], dtype=float)


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
    return make_lags(months.reshape(-1), 12)


def carbon_dioxide():
    weeks = statsmodels_table("co2")["co2"].ffill()  # a gap repeats the value before it
    return make_lags(weeks, 52)


def chick_weights():
    """The number of a chick is no quantity and is left out; the diet is one of four."""
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
    "airline passengers": lambda: make_lags(river_series("AirlinePassengers"), 12),
    "sunspots": lambda: make_lags(statsmodels_table("sunspots")["SUNACTIVITY"], 12),
    "El Niño": el_nino,
    "water flow": lambda: make_lags(river_series("WaterFlow"), 24),
    "CO₂": carbon_dioxide,
    "Seattle's hours": lambda: make_lags(vega_table("seattle_temps")["temp"], 24),
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


LONG = 20_000  # rows, of turbines, flights and the household: the first ones


def dummies(table, names):
    """Return a column for each value of these columns, in alphabetical order."""
    return [table[name] == word for name in names for word in sorted(set(table[name]))]


def clock(times):
    """Hour of the day and day of the year as points on circles."""
    turns = (times.hour + times.minute / 60) / 24, times.dayofyear / 365.25
    return [f(2 * np.pi * turn) for turn in turns for f in (np.sin, np.cos)]


def turbines(path):
    """The power of ten minutes, of four turbines in turn."""
    import pandas as pd

    table = pd.read_csv(path, nrows=LONG + 1000).dropna()[:LONG]
    times = pd.to_datetime(table["Date_time"], utc=True).dt
    names = ["Ba_avg", "Ws_avg", "Va_avg", "Ot_avg", "Ya_avg", "Wa_avg"]
    X = [table[name] for name in names] + clock(times) + dummies(table, ["Wind_turbine_name"])
    return np.column_stack(X).astype(float), table["P_avg"].to_numpy(float)


def flights(path):
    """The delay at arrival, in minutes, from the data at departure."""
    import pandas as pd

    table = pd.read_csv(path, nrows=LONG + 2000).dropna(subset=["arr_delay"])[:LONG]
    times = pd.to_datetime(table["time_hour"], utc=True).dt
    names = ["dep_delay", "distance", "sched_dep_time", "sched_arr_time"]
    X = [table[name] for name in names] + clock(times) + dummies(table, ["carrier", "origin"])
    return np.column_stack(X).astype(float), table["arr_delay"].to_numpy(float)


def household(path):
    """The power of a minute from the ten minutes before."""
    import pandas as pd

    table = pd.read_csv(path, nrows=LONG + 1000, na_values="?").dropna()
    return make_lags(table["power"][: LONG + 10], 10)


def numbers(folder):
    """Return for each stream a function that returns X and y, in order."""
    from stream_files import fetch

    def of(name, read):
        return lambda: read(fetch(folder, [name])[name])

    names = ("airline passengers", "water flow", "S&P 500", "Trump's approval", "chick weights",
             "solar flares", "diabetes")  # fmt: skip
    return {name: STREAMS[name] for name in names} | {
        "turbines": of("turbines", turbines),
        "flights": of("flights", flights),
        "household": of("power", household),
    }


def hold_out(X, y, order, every):
    """Return X and y of the rows to learn, in this order, and those of every `every`-th row."""
    X, y = X[order], y[order]
    asked = np.arange(len(y)) % every == 0
    return X[~asked], y[~asked], X[asked], y[asked]


def classes(folder):
    """Return for each stream and order a function that returns X and y to learn and held-out ones.

    Classes are 0, 1, …. In a long file every 20th row is held out, in others every 5th.
    """
    from stream_files import fetch

    def table(name):
        rows = np.loadtxt(fetch(folder, [name])[name], delimiter=",", skiprows=1)
        return rows[:, :-1], rows[:, -1]

    def segments():
        from river import datasets

        inputs, labels = zip(*datasets.ImageSegments(), strict=True)
        return make_matrix(inputs), np.unique(labels, return_inverse=True)[1].astype(float)

    def of(load, order, every=5, most=None):
        def made():
            X, y = load()
            orders = {
                "in order": np.arange(len(y)),
                "shuffled": np.random.default_rng(0).permutation(len(y)),
                "sorted": np.argsort(y, kind="stable"),
            }
            return hold_out(X, y, orders[order][:most], every)

        return made

    def digits():
        return scikit_learn("digits")

    phishing = STREAMS["phishing"]
    return {
        "digits, sorted": of(digits, "sorted"),
        "Elec2": of(lambda: table("elec"), "in order", 20),
        "weather": of(lambda: table("weather"), "in order", 20),
        "image segments": of(segments, "in order"),
        "image segments, shuffled": of(segments, "shuffled"),
        "digits, shuffled": of(digits, "shuffled"),
        "phishing": of(phishing, "in order"),
        "phishing, shuffled": of(phishing, "shuffled"),
        "Elec2, shuffled": of(lambda: table("elec"), "shuffled", 20, 10_000),
    }
