"""What the tests of all homes share. Tests import it as `lib`: each folder of tests/homes has a link to this one.

    build           where the repository, the build and its programs are
    checks          counting what held (Checks) and running tests (run)
    ports           ports that no other test gets
    weir_server     a real `weir serve`; h2_server: the same for tests of HTTP/2, gRPC and TLS
    redis_server    a real redis-server; redis_cluster: six of them
    nginx_server    a real nginx with the module; nginx_client and nginx_backend: what stands before and behind it
    resp, http_client, h2_frames    clients that send exactly the bytes they are given
    store_client    the redis:// store at the end of a pipe; store_proxy: what may stand between it and Redis
    lua_cases       the scripts, and the vectors as steps; module_cases: requests by module and script in turn
    abuse_tools     an honest client, memory and metrics beside an attack
    operation_tools a load that counts every answer, and systemd's side of a start
    stalls          how long the machine holds processes up
    certificates, receipts, sanitizers
"""
