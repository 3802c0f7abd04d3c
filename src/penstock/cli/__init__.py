"""The command line: it loads a user's file, runs or draws what it declares, and says every mistake under its name."""
