"""Run label graph, augmentation and bulk prediction on a Dask cluster (extra [cluster])."""
