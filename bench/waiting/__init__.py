"""What waits for messages, in a process of its own: ours and its peers.

Each script is called twice, with the database's URL and

    install             to make the tables
    wait KIND           to wait for messages, and print the moment at which each is handled
    write KIND N PAUSE  to write N messages one by one, and print the moment after each commit

Moments are of the monotonic clock, which all processes of a machine share.
"""
