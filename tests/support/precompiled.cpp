// Nothing but a reason to compile the precompiled header, which all tests use.
