// Package sdnotify tells the supervisor that started this process how it does,
// in the datagrams that systemd documents in sd_notify(3). It must never keep
// the process from its work, nor leave the supervisor's address in the
// environment, where a child could speak in the process's name.
package sdnotify
