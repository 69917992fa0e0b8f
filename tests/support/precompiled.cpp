// Exists only to compile the precompiled header that all tests use.
