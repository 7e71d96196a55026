from orfit.river.classifier import ORFitClassifier
from orfit.river.multi_target import ORFitMultiTargetRegressor
from orfit.river.regressor import ORFitRegressor
