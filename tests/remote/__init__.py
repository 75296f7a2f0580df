"""Reading from object stores and HTTP, against servers on 127.0.0.1 that the tests start themselves."""
