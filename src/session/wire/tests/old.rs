//! Servers that lack the newer requests.
