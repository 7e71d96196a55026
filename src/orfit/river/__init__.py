from orfit.river.regressor import ORFitRegressor
