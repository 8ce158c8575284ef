// Package archive makes a tar archive of a directory, the same bytes each time
// as long as the directory is the same, and unpacks one that came from somebody
// who is not trusted.
//
// It must never follow a symbolic link, and never write outside the directory
// that it was given, whatever an archive says.
//
// Start with Write and Unpack.
package archive
