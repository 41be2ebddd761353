//! Servers that send nonsense, hang up or say nothing.
