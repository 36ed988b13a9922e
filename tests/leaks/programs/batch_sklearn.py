"""A forest is trained and judged."""

import numpy
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score

random = numpy.random.default_rng(1)
features = random.normal(size=(3000, 20))
labels = (features[:, 0] + features[:, 1] * features[:, 2] > 0).astype(int)
scores = cross_val_score(RandomForestClassifier(60, random_state=1), features, labels, cv=4)
forest = RandomForestClassifier(120, random_state=2).fit(features, labels)
print(scores.mean(), forest.score(features, labels))
