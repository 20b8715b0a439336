"""Click log in, ranker out: scikit-learn estimators that train on tables of displayed documents and their clicks."""
