//! Other people's profile formats: written, and VMProf's read.
