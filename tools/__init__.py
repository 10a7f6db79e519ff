"""What those need who publish the package; it is not part of it."""
