"""The steps that schedules are composed of."""
