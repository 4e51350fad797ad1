"""Legal plans on machines with groups of items, such as graphics processors, without matrix instructions."""
