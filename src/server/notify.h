/* Telling systemd how we are (sd_notify), without its library: a datagram to $NOTIFY_SOCKET. */
#ifndef WEIR_SERVER_NOTIFY_H
#define WEIR_SERVER_NOTIFY_H

void server_notify(const char *state);

#endif
