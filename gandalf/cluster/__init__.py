"""The data steps on a Dask cluster: label graph, augmentation and bulk prediction. The extra [cluster]."""
